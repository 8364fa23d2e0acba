/* Daemons of memcached, by the meta protocol: a batch is one write and one reading to each daemon. A daemon that is late or gone is misses, and rests. */

#include "bank.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define REST_MS 1000
/* Items go out in pieces of this many bytes, so that neither side waits for the other with full buffers. */
#define PIECE (256 * 1024)
#define LARGEST (2 * 1024 * 1024)

/* Before the bytes of each item: whatever does not prove itself is a miss. */
struct envelope {
    char magic[4];
    uint32_t length;
    uint64_t check[2];
};

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int daemons_parse(struct daemons *daemons, const char *list)
{
    char *copy = strdup(list), *rest = NULL;
    daemons->count = 0;
    for (char *one = strtok_r(copy, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        bool is_address = one[0] == '/' || strrchr(one, ':');
        for (int at = 0; is_address && at < daemons->count; at++)
            is_address = strcmp(daemons->address[at], one) != 0;
        if (!is_address || daemons->count == BANK_DAEMONS) {
            free(copy);
            return -1;
        }
        daemons->address[daemons->count++] = strdup(one);
    }
    free(copy);
    return daemons->count ? 0 : -1;
}

void daemons_free(struct daemons *daemons)
{
    for (int at = 0; at < daemons->count; at++)
        free(daemons->address[at]);
    daemons->count = 0;
}

void links_init(struct links *links)
{
    for (int at = 0; at < BANK_DAEMONS; at++) {
        links->fd[at] = -1;
        links->rest_until_ms[at] = 0;
    }
}

static void hang_up(struct links *links, int at, bool failed)
{
    if (links->fd[at] >= 0)
        close(links->fd[at]);
    links->fd[at] = -1;
    if (failed)
        links->rest_until_ms[at] = now_ms() + REST_MS;
}

void links_close(struct links *links)
{
    for (int at = 0; at < BANK_DAEMONS; at++)
        hang_up(links, at, false);
}

static bool ready(int fd, short events, uint64_t until)
{
    uint64_t now = now_ms();
    struct pollfd poll_fd = {.fd = fd, .events = events};
    return now < until && poll(&poll_fd, 1, (int)(until - now)) == 1;
}

static int dial(const char *address, uint64_t until)
{
    struct sockaddr_storage place = {0};
    socklen_t length;
    if (address[0] == '/') {
        struct sockaddr_un *local = (struct sockaddr_un *)&place;
        local->sun_family = AF_UNIX;
        if (strlen(address) >= sizeof local->sun_path)
            return -1;
        strcpy(local->sun_path, address);
        length = sizeof *local;
    } else {
        const char *colon = strrchr(address, ':');
        char host[256];
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
        if ((size_t)(colon - address) >= sizeof host)
            return -1;
        snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
        if (getaddrinfo(host, colon + 1, &hints, &found) || !found)
            return -1;
        memcpy(&place, found->ai_addr, found->ai_addrlen);
        length = found->ai_addrlen;
        freeaddrinfo(found);
    }
    int fd = socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1, error = 0;
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    socklen_t size = sizeof error;
    if (connect(fd, (struct sockaddr *)&place, length) < 0 &&
        (errno != EINPROGRESS || !ready(fd, POLLOUT, until) || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error)) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool reach(const struct daemons *daemons, struct links *links, int at, uint64_t until)
{
    if (links->fd[at] >= 0) {
        /* An idle connection that can be read was closed by the daemon, or has an answer that nobody waits for. */
        struct pollfd idle = {.fd = links->fd[at], .events = POLLIN};
        if (poll(&idle, 1, 0) == 0)
            return true;
        hang_up(links, at, false);
    }
    if (now_ms() < links->rest_until_ms[at])
        return false;
    links->fd[at] = dial(daemons->address[at], until);
    if (links->fd[at] < 0)
        hang_up(links, at, true);
    return links->fd[at] >= 0;
}

static bool send_all(int fd, const char *bytes, size_t length, uint64_t until)
{
    while (length) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent > 0) {
            bytes += sent;
            length -= sent;
        } else if (errno == EAGAIN) {
            if (!ready(fd, POLLOUT, until))
                return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* What a daemon sends, a buffer at a time. */
struct reader {
    int fd;
    uint64_t until;
    size_t from, to;
    char bytes[16384];
};

static bool fill(struct reader *reader)
{
    for (;;) {
        ssize_t got = recv(reader->fd, reader->bytes, sizeof reader->bytes, 0);
        if (got > 0) {
            reader->from = 0;
            reader->to = got;
            return true;
        }
        if (got == 0 || (errno != EAGAIN && errno != EINTR) || !ready(reader->fd, POLLIN, reader->until))
            return false;
    }
}

static bool take(struct reader *reader, char *to, size_t length)
{
    while (length) {
        if (reader->from == reader->to && !fill(reader))
            return false;
        size_t part = reader->to - reader->from < length ? reader->to - reader->from : length;
        memcpy(to, reader->bytes + reader->from, part);
        reader->from += part;
        to += part;
        length -= part;
    }
    return true;
}

static bool take_line(struct reader *reader, char *line, size_t size)
{
    for (size_t at = 0; at < size; at++) {
        if (!take(reader, line + at, 1))
            return false;
        if (line[at] == '\n') {
            line[at > 0 && line[at - 1] == '\r' ? at - 1 : at] = 0;
            return true;
        }
    }
    return false;
}

static uint32_t crc32(const char *key)
{
    uint32_t crc = UINT32_MAX;
    for (; *key; key++) {
        crc ^= (unsigned char)*key;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320 : crc >> 1;
    }
    return ~crc >> 16 & 0x7FFF;
}

/* As libmemcache computes it, or blocks in turn. */
static int daemon_of(const struct daemons *daemons, const struct item *item)
{
    if (daemons->placement == PLACEMENT_MODULO)
        return item->block % daemons->count;
    return crc32(item->key) % daemons->count;
}

static void seal(const struct daemons *daemons, const char *key, const char *bytes, size_t length, uint64_t check[2])
{
    uint64_t under[2], name[2];
    siphash(daemons->secret, key, strlen(key), name);
    under[0] = daemons->secret[0] ^ name[0];
    under[1] = daemons->secret[1] ^ name[1];
    siphash(under, bytes, length, check);
}

/* Takes one item's value off the wire. False if the connection is of no use any more; without bytes it was a miss. */
static bool take_value(const struct daemons *daemons, struct reader *reader, size_t length, struct item *item)
{
    struct envelope envelope;
    char end[2];
    uint64_t check[2];
    if (length > LARGEST)
        return false;
    char *bytes = malloc(length + 1);
    bool whole = bytes && take(reader, bytes, length) && take(reader, end, 2);
    if (whole && length >= sizeof envelope) {
        memcpy(&envelope, bytes, sizeof envelope);
        seal(daemons, item->key, bytes + sizeof envelope, length - sizeof envelope, check);
        if (!memcmp(envelope.magic, "VBG1", 4) && envelope.length == length - sizeof envelope && !memcmp(check, envelope.check, sizeof check)) {
            memmove(bytes, bytes + sizeof envelope, envelope.length);
            item->bytes = bytes;
            item->length = envelope.length;
            return true;
        }
    }
    free(bytes);
    return whole;
}

static void get_from(const struct daemons *daemons, struct links *links, int at, struct item *items, int count, uint64_t until)
{
    struct reader reader = {.fd = links->fd[at], .until = until};
    char line[512];
    for (int n = 0; n < count; n++) {
        size_t length;
        if (daemon_of(daemons, &items[n]) != at)
            continue;
        if (!take_line(&reader, line, sizeof line))
            return hang_up(links, at, true);
        if (!strncmp(line, "EN", 2))
            continue;
        if (sscanf(line, "VA %zu", &length) != 1 || !take_value(daemons, &reader, length, &items[n]))
            return hang_up(links, at, true);
    }
    if (reader.from != reader.to)
        hang_up(links, at, true);
}

bool daemons_get(const struct daemons *daemons, struct links *links, struct item *items, int count)
{
    uint64_t until = now_ms() + daemons->deadline_ms;
    bool asked[BANK_DAEMONS] = {false}, all = true;
    char *out = malloc((size_t)count * (BANK_KEY + 8) + 1);
    for (int n = 0; n < count; n++)
        items[n].bytes = NULL;
    for (int at = 0; out && at < daemons->count; at++) {
        size_t length = 0;
        for (int n = 0; n < count; n++)
            if (daemon_of(daemons, &items[n]) == at)
                length += sprintf(out + length, "mg %s v\r\n", items[n].key);
        if (!length || !reach(daemons, links, at, until))
            continue;
        asked[at] = send_all(links->fd[at], out, length, until);
        if (!asked[at])
            hang_up(links, at, true);
    }
    free(out);
    for (int at = 0; at < daemons->count; at++)
        if (asked[at])
            get_from(daemons, links, at, items, count, until);
    for (int n = 0; n < count; n++)
        all = all && items[n].bytes;
    return all;
}

/* Sends what was gathered and waits until the daemon has done it: quiet commands, then one that answers. */
static bool settle(struct links *links, int at, const char *out, size_t length, uint64_t until)
{
    struct reader reader = {.fd = links->fd[at], .until = until};
    char line[512];
    if (!send_all(links->fd[at], out, length, until) || !send_all(links->fd[at], "mn\r\n", 4, until))
        return false;
    do {
        if (!take_line(&reader, line, sizeof line))
            return false;
    } while (strcmp(line, "MN"));
    return true;
}

static void change(const struct daemons *daemons, struct links *links, const struct item *items, int count, bool is_set)
{
    for (int at = 0; at < daemons->count; at++) {
        char *out = NULL;
        size_t length = 0, room = 0;
        uint64_t until = now_ms() + daemons->deadline_ms;
        bool works = true, reached = false;
        for (int n = 0; n < count && works; n++) {
            const struct item *item = &items[n];
            if (daemon_of(daemons, item) != at)
                continue;
            if (!reached && !(reached = works = reach(daemons, links, at, until)))
                break;
            size_t needs = length + BANK_KEY + 64 + (is_set ? item->length + sizeof(struct envelope) : 0);
            if (needs > room) {
                char *more = realloc(out, room = needs * 2);
                if (!more)
                    break;
                out = more;
            }
            if (is_set) {
                struct envelope envelope = {.magic = "VBG1", .length = item->length};
                seal(daemons, item->key, item->bytes, item->length, envelope.check);
                length += sprintf(out + length, "ms %s %zu q\r\n", item->key, sizeof envelope + item->length);
                memcpy(out + length, &envelope, sizeof envelope);
                memcpy(out + length + sizeof envelope, item->bytes, item->length);
                length += sizeof envelope + item->length;
                memcpy(out + length, "\r\n", 2);
                length += 2;
            } else {
                length += sprintf(out + length, "md %s q\r\n", item->key);
            }
            if (length > PIECE) {
                works = settle(links, at, out, length, now_ms() + daemons->deadline_ms);
                length = 0;
            }
        }
        if (works && length)
            works = settle(links, at, out, length, now_ms() + daemons->deadline_ms);
        if (!works)
            hang_up(links, at, true);
        free(out);
    }
}

void daemons_set(const struct daemons *daemons, struct links *links, const struct item *items, int count)
{
    change(daemons, links, items, count, true);
}

void daemons_delete(const struct daemons *daemons, struct links *links, const struct item *items, int count)
{
    change(daemons, links, items, count, false);
}

void items_free(struct item *items, int count)
{
    for (int n = 0; n < count; n++)
        free(items[n].bytes);
    free(items);
}
