sed -i 's/b + a/sum((a, b))/' pydantic_ai_slim/pydantic_ai/tools.py
git commit --quiet --all --fixup 'HEAD^{/Swap}'
GIT_SEQUENCE_EDITOR=true git rebase --quiet --interactive --autosquash refs/series/base
