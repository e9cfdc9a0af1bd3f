"""A webhook receiver, which verifies the signature of each delivery and prints every event once, in order.

python examples/webhook_receiver.py 9000 whsec_…
"""

import base64
import hashlib
import hmac
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

OLDEST_S = 300  # a delivery that is older than this may have been recorded and sent again by somebody else
seen: set[str] = set()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        delivery, sent_at = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        key = base64.b64decode(secret.removeprefix("whsec_"))
        mac = hmac.new(key, f"{delivery}.{sent_at}.".encode() + body, hashlib.sha256)
        expected = f"v1,{base64.b64encode(mac.digest()).decode()}"
        signed = any(hmac.compare_digest(each, expected) for each in self.headers["webhook-signature"].split())
        genuine = signed and abs(time.time() - int(sent_at)) < OLDEST_S
        self.send_response(204 if genuine else 401)
        self.end_headers()
        if genuine and delivery not in seen:  # an event may come twice, with the same id
            seen.add(delivery)
            event = json.loads(body)
            print(event["type"], event["data"]["board"], flush=True)


port, secret = int(sys.argv[1]), sys.argv[2]
HTTPServer(("127.0.0.1", port), Receiver).serve_forever()
