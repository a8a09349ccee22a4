"""The server over HTTP; `app.make` returns its ASGI application."""
