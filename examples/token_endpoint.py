"""A token endpoint, which gives a player's page a token for one match and also serves that page from the folder `site`.

RANKCURVE_KEY=rk_… python token_endpoint.py http://127.0.0.1:8080 9000
"""

import hashlib
import json
import os
import secrets
import sys
from functools import partial
from http.cookies import SimpleCookie
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

from rankcurve import Client


class Endpoint(SimpleHTTPRequestHandler):
    def do_POST(self) -> None:
        known = SimpleCookie(self.headers["Cookie"]).get("login")  # your game has a login instead of a random cookie
        login = known.value if known else secrets.token_urlsafe()
        player = f"player-{hashlib.sha256(login.encode()).hexdigest()[:16]}"
        issued = service.issue_token(player, ["arena"], expires_in_s=300, limits={"xp": 7})
        self.send_response(200)
        if not known:
            self.send_header("Set-Cookie", f"login={login}; HttpOnly; SameSite=Strict; Max-Age=31536000")
        self.end_headers()
        self.wfile.write(json.dumps({"service": url, "player": player, "token": issued.token}).encode())


url, port = sys.argv[1:]
service = Client(url, os.environ["RANKCURVE_KEY"])
ThreadingHTTPServer(("127.0.0.1", int(port)), partial(Endpoint, directory="site")).serve_forever()
