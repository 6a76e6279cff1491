"""A server that takes mail."""

import contextlib
import email
import email.policy
import socketserver
import threading
from collections.abc import Iterator
from email.message import EmailMessage
from typing import cast


@contextlib.contextmanager
def mail_server() -> Iterator[tuple[str, list[EmailMessage]]]:
    """A mail server without TLS: its address, and the mails that came. It knows nobody at gone.example."""
    came: list[EmailMessage] = []

    class Handler(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def handle(self) -> None:
            self.say("220 ready")
            while line := self.rfile.readline().decode().strip():
                word = line.split(":")[0].split()[0].upper()
                if word == "DATA":
                    self.say("354 go on")
                    text = b"".join(iter(self.rfile.readline, b".\r\n"))
                    mail = email.message_from_bytes(text, policy=email.policy.default)
                    came.append(cast(EmailMessage, mail))
                if word == "RCPT" and "gone.example" in line:
                    self.say("550 no such user")
                else:
                    self.say("221 bye" if word == "QUIT" else "250 fine")

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"smtp://127.0.0.1:{server.server_address[1]}", came
        finally:
            server.shutdown()
