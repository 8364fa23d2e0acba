"""A server of pyftpdlib on loopback: pyftpd.py ROOT [PEM [BYTES_A_SECOND]]. Prints its port."""

import logging
import sys

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler, ThrottledDTPHandler, TLS_FTPHandler
from pyftpdlib.servers import FTPServer

logging.basicConfig(level=logging.ERROR)
root, pem, rate = (sys.argv[1:] + ["", ""])[:3]
handler = TLS_FTPHandler if pem else FTPHandler
if pem:
    handler.certfile = pem
    handler.tls_control_required = handler.tls_data_required = True
if rate:
    handler.dtp_handler = type("Slow", (ThrottledDTPHandler,), {"write_limit": int(rate)})
handler.authorizer = DummyAuthorizer()
handler.authorizer.add_user("alice", "secret", root, perm="elradfmwMT")
server = FTPServer(("127.0.0.1", 0), handler)
print("port", server.address[1], flush=True)
server.serve_forever()
