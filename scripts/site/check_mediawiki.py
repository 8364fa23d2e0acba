"""Edits a wiki by its API, by SQL and by uploads, and reads it through other proxies. `scripts/demo-site.sh mediawiki` starts it."""

import json
import random
import re
import struct
import urllib.parse
import zlib

import pymysql

from checking import Client, Page, Run, arguments

PAGES = 6
GONE = "gone"


def shown(status, body):
    """The version that a page shows, in its text. One that is deleted shows the log of its deletion, with what its text was."""
    if status == 404 and b"no text in this page" in body:
        return GONE
    found = re.search(rb"version-(\d+)-of", body)
    return int(found[1]) if status == 200 and found else f"status {status}"


class Api:
    """The API of the wiki, through one proxy after another."""

    def __init__(self, run, host, ports):
        self.run, self.client, self.ports = run, Client(host), ports

    def call(self, port, parameters, files=None):
        parameters = {"format": "json", "formatversion": "2", **parameters}
        if files:
            boundary = "----verbena"
            parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
                     for name, value in parameters.items()]
            for name, (file, content) in files.items():
                head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\n'
                parts.append(f"{head}Content-Type: application/octet-stream\r\n\r\n".encode() + content + b"\r\n")
            body, kind = b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"
        else:
            body, kind = urllib.parse.urlencode(parameters), "application/x-www-form-urlencoded"
        status, _, answer, _ = self.client.ask(port, "POST", "/api.php", body, {"Content-Type": kind})
        said = json.loads(answer) if status == 200 else {}
        if status != 200 or "error" in said:
            raise RuntimeError(f"{parameters.get('action')}: {status} {answer[:2000]!r}")
        return said

    def token(self, port, kind="csrf"):
        return self.call(port, {"action": "query", "meta": "tokens", "type": kind})["query"]["tokens"][f"{kind}token"]

    def log_in(self, port, user, password):
        said = self.call(port, {"action": "clientlogin", "username": user, "password": password,
                                "loginreturnurl": "http://wiki.example/", "logintoken": self.token(port, "login")})
        if said["clientlogin"]["status"] != "PASS":
            raise RuntimeError(f"log-in: {said}")


def text(version, nth):
    links = " ".join(f"[[Page {other}]]" for other in range(PAGES))
    return f"A page: version-{version}-of-{nth}. It links to {links}. [[Category:Checked]]"


def picture(version):
    """A PNG of one pixel, whose colour is the version."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    colour = bytes([version >> 16 & 255, version >> 8 & 255, version & 255])
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(b"\0" + colour)) + chunk(b"IEND", b""))


def main():
    asked = arguments()
    run = Run(asked.seconds, asked.reads_between, asked.faults)
    places = [(port, "at Apache") for port in asked.proxies] + [(asked.own, "at our proxy")]
    ports = [port for port, _ in places]
    anonymous, sysop = Api(run, asked.host, ports), Api(run, asked.host, ports)
    sysop.log_in(asked.proxies[0], "Admin", "one of many words")
    token = sysop.token(asked.proxies[0])
    database = pymysql.connect(host="127.0.0.1", port=asked.relay, user="wiki", password="secret", database="wiki", autocommit=True)
    pages = [Page(f"/index.php/Page_{nth}", shown) for nth in range(PAGES)]
    versions, texts = [0] * PAGES, [None] * PAGES
    reader = Client(asked.host)
    chance = random.Random(7)

    def edit(nth, port):
        versions[nth] += 1
        pages[nth].begin(versions[nth])
        said = anonymous.call(port, {"action": "edit", "title": f"Page {nth}", "text": text(versions[nth], nth), "token": "+\\"})
        if said["edit"]["result"] != "Success":
            raise RuntimeError(f"edit: {said}")
        pages[nth].confirm()
        run.count("edits")
        texts[nth] = said["edit"]["newrevid"]

    def by_hand(nth):
        """The row that has the text of a page, as somebody may change it who repairs a wiki."""
        versions[nth] += 1
        pages[nth].begin(versions[nth])
        with database.cursor() as cursor:
            cursor.execute(
                "UPDATE text JOIN content ON content_address = CONCAT('tt:', old_id) JOIN slots ON slot_content_id = content_id"
                " SET old_text = %s, old_flags = 'utf-8' WHERE slot_revision_id = %s",
                (text(versions[nth], nth), texts[nth]))
            if cursor.rowcount != 1:
                raise RuntimeError(f"{cursor.rowcount} rows are the text of page {nth}")
        pages[nth].confirm()
        run.count("updates by SQL")

    def delete(nth, port):
        pages[nth].begin(GONE)
        sysop.call(port, {"action": "delete", "title": f"Page {nth}", "token": token})
        pages[nth].confirm()
        run.count("deletions")
        texts[nth] = None

    uploads = []

    def upload(port):
        version = len(uploads[0].states) + 1 if uploads else 1
        if uploads:
            uploads[0].begin(picture(version))
        said = sysop.call(port, {"action": "upload", "filename": "Checked.png", "ignorewarnings": "1", "token": token},
                          {"file": ("Checked.png", picture(version))})
        if said["upload"]["result"] != "Success":
            raise RuntimeError(f"upload: {said}")
        if not uploads:
            path = urllib.parse.urlsplit(said["upload"]["imageinfo"]["url"]).path
            page = Page(path, lambda status, body: body if status == 200 else f"status {status}")
            page.begin(picture(version))
            uploads.append(page)
        uploads[0].confirm()
        run.count("uploads")

    for nth in range(PAGES):
        edit(nth, asked.proxies[nth % len(asked.proxies)])
    upload(asked.proxies[0])
    print("all pages are there", flush=True)

    def log_in_again():
        """What was lost of the session and of the connection to the database is made anew."""
        nonlocal sysop, token, database
        for api in (anonymous, sysop):
            api.client.close()
        sysop = Api(run, asked.host, ports)
        port = chance.choice(ports)
        sysop.log_in(port, "Admin", "one of many words")
        token = sysop.token(port)
        database = pymysql.connect(host="127.0.0.1", port=asked.relay, user="wiki", password="secret", database="wiki", autocommit=True)

    def write(round):
        nth, port = chance.randrange(PAGES), chance.choice(ports)
        try:
            change(round, nth, port)
        except Exception:
            # Which revision a page has is not known, so it is edited next.
            for page in pages + uploads:
                page.doubt()
            texts[:] = [None] * PAGES
            log_in_again()
            raise

    def change(round, nth, port):
        # How a page is changed goes round, so that a short run has each.
        kind = round % 6
        page = pages[nth]
        if kind == 5:
            upload(port)
            page = uploads[0]
        elif texts[nth] is None or kind in (0, 2):
            edit(nth, port)
        elif kind in (1, 3):
            by_hand(nth)
        else:
            delete(nth, port)
        for place in places:
            if place[0] != port:
                run.read(reader, place[0], page, place[1], is_soon=True)

    readers = [run.guarded(run.reader, asked.host, places, pages + uploads) for _ in range(4)]
    answers = int(asked.seconds) * 3
    run.finish([run.guarded(run.writer, write), *readers], {
        "answers at Apache": answers, "hits at Apache": answers // 6, "hits at our proxy": 1,
        "edits": PAGES + 2, "updates by SQL": 1, "uploads": 2, "deletions": 1})


if __name__ == "__main__":
    main()
