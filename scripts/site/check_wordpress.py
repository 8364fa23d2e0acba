"""A blog with two browsers that have cookies, one that has none, comments, log-in, edits and SQL. `scripts/demo-site.sh wordpress` starts it."""

import random
import re
import urllib.parse
import xmlrpc.client

import pymysql

from checking import Client, Page, Run, arguments

ADMIN = ("admin", "one of many words")
# What a page shows of the browser that it is for.
ALICE, BOB = b"alice-herself@example.org", b"Logged in as Bob-himself"


def shown(status, body):
    """The version of a post, and its newest comment."""
    found = re.search(rb"version-(\d+)-of-\d+", body)
    if status != 200 or not found:
        return f"status {status}"
    return int(found[1]), max((int(number) for number in re.findall(rb"comment-number-(\d+)-", body)), default=0)


class Browser(Client):
    """One whose pages show for whom they are."""

    def __init__(self, host, marks, others):
        super().__init__(host)
        self.marks, self.others = marks, others

    def look(self, run, body, what):
        for other in self.others:
            if other in body:
                run.count("pages of another")
                run.fail(f"{what} of the browser {self.marks} shows {other!r}")
        if self.marks and not any(mark in body for mark in self.marks):
            run.fail(f"{what} is not for the browser {self.marks}: {body[-3000:]!r}")


def main():
    asked = arguments(lambda parser: parser.add_argument("--posts", required=True, help="their numbers"))
    run = Run(asked.seconds, asked.reads_between)
    places = [(port, "at Apache") for port in asked.proxies] + [(asked.own, "at our proxy")]
    ports = [port for port, _ in places]
    posts = [int(number) for number in asked.posts.split(",")]
    pages = [Page(f"/?p={post}", shown) for post in posts]
    for page in pages:
        page.begin((0, 0))
        page.confirm()
    chance = random.Random(7)
    database = pymysql.connect(host="127.0.0.1", port=asked.relay, user="blog", password="secret", database="blog", autocommit=True)
    alice = Browser(asked.host, [ALICE], [BOB])
    bob = Browser(asked.host, [BOB], [ALICE])
    nobody = Browser(asked.host, [], [ALICE, BOB])
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    comments = 0

    def advance(nth, version=0, comment=None):
        last = pages[nth].states[-1]
        pages[nth].begin((last[0] + version, last[1] if comment is None else comment))
        return pages[nth].states[-1]

    def comment(browser, nth, port):
        nonlocal comments
        comments += 1
        advance(nth, comment=comments)
        fields = {"comment": f"comment-number-{comments}-", "comment_post_ID": posts[nth], "comment_parent": 0}
        if browser is alice:
            fields |= {"author": "Alice", "email": ALICE.decode(), "url": "", "wp-comment-cookies-consent": "yes"}
        status, _, body, answer = browser.ask(port, "POST", "/wp-comments-post.php", urllib.parse.urlencode(fields), form)
        if status != 302 or "unapproved" in answer.getheader("Location", ""):
            raise RuntimeError(f"comment: {status} {answer.getheaders()} {body[:2000]!r}")
        pages[nth].confirm()
        run.count("comments")

    def log_in(port):
        bob.ask(port, "GET", "/wp-login.php")
        fields = {"log": "bob", "pwd": "words of bob", "wp-submit": "Log In", "testcookie": "1"}
        status, _, body, _ = bob.ask(port, "POST", "/wp-login.php", urllib.parse.urlencode(fields), form)
        if status != 302 or not any(name.startswith("wordpress_logged_in") for name in bob.cookies):
            raise RuntimeError(f"log-in: {status} {body[:2000]!r}")
        run.count("log-ins")

    def edit(nth, port):
        version = advance(nth, version=1)[0]
        content = {"post_content": f"version-{version}-of-{nth}"}
        body = xmlrpc.client.dumps((1, *ADMIN, str(posts[nth]), content), "wp.editPost")
        status, _, body, _ = nobody.ask(port, "POST", "/xmlrpc.php", body, {"Content-Type": "text/xml"})
        if status != 200 or xmlrpc.client.loads(body)[0] != (True,):
            raise RuntimeError(f"edit: {status} {body[:2000]!r}")
        pages[nth].confirm()
        run.count("edits")

    def by_hand(nth):
        version = advance(nth, version=1)[0]
        with database.cursor() as cursor:
            cursor.execute("UPDATE wp_posts SET post_content = %s WHERE ID = %s", (f"version-{version}-of-{nth}", posts[nth]))
        pages[nth].confirm()
        run.count("updates by SQL")

    def write(round):
        nth, port, kind = chance.randrange(len(posts)), chance.choice(ports), round % 5
        if kind == 0:
            comment(alice, nth, port)
        elif kind == 1:
            comment(bob, nth, port)
        elif kind == 2:
            edit(nth, port)
        elif kind == 3:
            by_hand(nth)
        else:
            log_in(port)
        # Each browser reads it next elsewhere, those with cookies first: what they are given is theirs.
        for browser in (alice, bob, nobody):
            place = chance.choice([place for place in places if place[0] != port])
            run.read(browser, *[place[0], pages[nth], place[1]], is_soon=True, look=browser.look)
            run.count("answers to browsers with cookies", by=0 if browser is nobody else 1)

    # Before any reader: alice's form is filled in, bob's pages greet him.
    log_in(ports[0])
    comment(alice, 0, ports[0])

    def reader():
        """Of those without cookies: they get hits."""
        browser, chance = Browser(asked.host, [], [ALICE, BOB]), random.Random()
        while not run.is_over():
            port, where = chance.choice(places)
            run.read(browser, port, chance.choice(pages), where, look=browser.look)

    readers = [run.guarded(reader) for _ in range(4)]
    answers = int(asked.seconds) * 3
    run.counts["pages of another"] = 0
    run.finish([run.guarded(run.writer, write), *readers], {
        "answers at Apache": answers, "hits at Apache": answers // 6, "hits at our proxy": 1,
        "edits": 1, "updates by SQL": 1, "comments": 3, "log-ins": 2, "answers to browsers with cookies": 8})


if __name__ == "__main__":
    main()
