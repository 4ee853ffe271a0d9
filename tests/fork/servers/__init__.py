"""What the built fork does in real servers: streams whose reader goes, a websocket with two chats, AG-UI, MCP sessions."""
