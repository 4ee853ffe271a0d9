"""Each run has notes of its own."""

from fastapi import FastAPI
from pydantic_ai import Agent, FunctionToolset

from examples.tutorial.model import MODEL


class Notes(FunctionToolset[str]):
    """Keeps notes."""

    stateful = True

    def __init__(self) -> None:
        super().__init__([self.keep])
        self.kept: list[str] = []

    def copy(self) -> 'Notes':
        """Make the toolset that a run works with."""
        return Notes()

    def keep(self, note: str) -> str:
        """Keep a note, and return all of them."""
        self.kept.append(note)
        return f'Notes: {", ".join(self.kept)}'


notes = Notes()
agent = Agent(MODEL, deps_type=str, toolsets=[notes])  # one for all users

app = FastAPI()


@app.post('/messages')
async def messages(user: str, text: str) -> dict[str, str]:
    """Answer a message. A real server takes the user from the login."""
    result = await agent.run(text, deps=user)
    return {'text': result.output}
