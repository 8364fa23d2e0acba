/* CMCache: asks the bank before the brick. It stands directly above a protocol/client, one for each brick (B12).
 *
 * `imca` is the paper's: the path and the descriptor are kept at open and create; stat and read ask the daemons by path; a miss of one block sends the
 * whole read on. What it serves may be old.
 *
 * `strong`: the request arrives; the words are read (B7); none is busy and the brick lives; items are fetched under these generations; the words are
 * read again, for a read needs those of the size and of its chunks together (B9); served.
 */

#include "bank.h"

#include <inttypes.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "options.h"

#define COUNTERS "glusterfs.verbena.bank"

struct client {
    struct settings set;
    struct workers *workers;
    pthread_mutex_t lock;
    struct words *words;
    uint64_t looked_ms;
    bool is_here;
    /* Child_down: nothing is served, for the brick's acknowledged writes may be elsewhere by now. */
    _Atomic bool is_up;
    _Atomic uint64_t hits, misses, stat_hits, stat_misses, moved;
};

static const char *path_of(xlator_t *this, fd_t *fd)
{
    uint64_t value = 0;
    return fd_ctx_get(fd, this, &value) ? NULL : (const char *)(uintptr_t)value;
}

static void keep_path(xlator_t *this, fd_t *fd, const char *path)
{
    char *own = path ? strdup(path) : NULL;
    if (own && fd_ctx_set(fd, this, (uint64_t)(uintptr_t)own))
        free(own);
}

/* The brick's words, mapped anew once a second while it has none that live. */
static struct words *words_of(struct client *client)
{
    struct timespec now;
    if (!client->is_here)
        return NULL;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ms = (uint64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    struct words *words = client->words;
    if ((!words || !words_alive(words)) && now_ms - client->looked_ms >= 1000) {
        client->looked_ms = now_ms;
        words_close(words);
        words = client->words = words_open(client->set.words_path);
    }
    return words && words_alive(words) ? words : NULL;
}

/* Fetches a stat item, and blocks `first` to `last`. False: ask the brick. */
static bool fetch(struct client *client, struct worker *worker, const char *path, const unsigned char *gfid, struct item *items, uint64_t first, int blocks)
{
    struct word_set set = {0};
    struct words *words = NULL;
    bool named = true;
    uint64_t size = client->set.block_size;
    if (!client->is_up)
        return false;
    if (client->set.is_strong) {
        /* Words may be closed when they are dead: one job at a time uses them to name items and to look again. */
        pthread_mutex_lock(&client->lock);
        words_add(&set, gfid, WORD_ATTRIBUTES, 0);
        words_add(&set, gfid, WORD_FILE, 0);
        if (blocks)
            words_add_range(&set, gfid, first * size, blocks * size);
        int chunks = (int)((((first + blocks) * size - 1) >> CHUNK_SHIFT) - (first * size >> CHUNK_SHIFT)) + 1;
        words = words_of(client);
        named = words && (!blocks || set.count == chunks + 2) && words_look(words, &set);
        pthread_mutex_unlock(&client->lock);
        for (int at = 0; named && at < blocks; at++) {
            uint64_t chunk = ((first + at) * size >> CHUNK_SHIFT) - (first * size >> CHUNK_SHIFT);
            const uint64_t generations[3] = {set.everything_seen, set.seen[1], set.seen[2 + chunk]};
            name_block(&items[1 + at], client->set.daemons.secret, gfid, generations, first + at, size);
        }
        const uint64_t generations[2] = {set.everything_seen, set.seen[0]};
        name_stat(&items[0], client->set.daemons.secret, gfid, generations);
    } else {
        named = name_path_stat(&items[0], path);
        for (int at = 0; named && at < blocks; at++)
            named = name_path_block(&items[1 + at], path, first + at, size);
    }
    if (!named || !daemons_get(&client->set.daemons, &worker->links, items, 1 + blocks) || items[0].length != sizeof(struct iatt))
        return false;
    if (!client->set.is_strong)
        return true;
    pthread_mutex_lock(&client->lock);
    bool same = client->is_up && client->words == words && words_alive(words) && (words_same(words, &set) || without("B9"));
    pthread_mutex_unlock(&client->lock);
    if (!same)
        client->moved++;
    return same;
}

/* ---- Open and create: the path is kept with the descriptor. ---- */

static int32_t open_cbk(call_frame_t *frame, void *cookie, xlator_t *this, int32_t op_ret, int32_t op_errno, fd_t *fd, dict_t *xdata)
{
    char *path = frame->local;
    frame->local = NULL;
    if (op_ret >= 0)
        keep_path(this, fd, path);
    free(path);
    STACK_UNWIND_STRICT(open, frame, op_ret, op_errno, fd, xdata);
    return 0;
}

static int32_t cm_open(call_frame_t *frame, xlator_t *this, loc_t *loc, int32_t flags, fd_t *fd, dict_t *xdata)
{
    frame->local = loc->path ? strdup(loc->path) : NULL;
    STACK_WIND(frame, open_cbk, FIRST_CHILD(this), FIRST_CHILD(this)->fops->open, loc, flags, fd, xdata);
    return 0;
}

static int32_t create_cbk(call_frame_t *frame, void *cookie, xlator_t *this, int32_t op_ret, int32_t op_errno, fd_t *fd, inode_t *inode, struct iatt *buf,
                          struct iatt *preparent, struct iatt *postparent, dict_t *xdata)
{
    char *path = frame->local;
    frame->local = NULL;
    if (op_ret >= 0)
        keep_path(this, fd, path);
    free(path);
    STACK_UNWIND_STRICT(create, frame, op_ret, op_errno, fd, inode, buf, preparent, postparent, xdata);
    return 0;
}

static int32_t cm_create(call_frame_t *frame, xlator_t *this, loc_t *loc, int32_t flags, mode_t mode, mode_t umask, fd_t *fd, dict_t *xdata)
{
    frame->local = loc->path ? strdup(loc->path) : NULL;
    STACK_WIND(frame, create_cbk, FIRST_CHILD(this), FIRST_CHILD(this)->fops->create, loc, flags, mode, umask, fd, xdata);
    return 0;
}

static int32_t cm_release(xlator_t *this, fd_t *fd)
{
    uint64_t value = 0;
    if (fd_ctx_del(fd, this, &value) == 0)
        free((void *)(uintptr_t)value);
    return 0;
}

/* ---- Stat. ---- */

static int32_t below_stat(call_frame_t *frame, xlator_t *this, loc_t *loc, dict_t *xdata)
{
    STACK_WIND_TAIL(frame, FIRST_CHILD(this), FIRST_CHILD(this)->fops->stat, loc, xdata);
    return 0;
}

static int32_t below_fstat(call_frame_t *frame, xlator_t *this, fd_t *fd, dict_t *xdata)
{
    STACK_WIND_TAIL(frame, FIRST_CHILD(this), FIRST_CHILD(this)->fops->fstat, fd, xdata);
    return 0;
}

static void stat_job(struct worker *worker, void *job)
{
    call_stub_t *stub = job;
    call_frame_t *frame = stub->frame;
    struct client *client = frame->this->private;
    bool is_fd = stub->fop == GF_FOP_FSTAT;
    inode_t *inode = is_fd ? stub->args.fd->inode : stub->args.loc.inode;
    const char *path = is_fd ? path_of(frame->this, stub->args.fd) : stub->args.loc.path;
    struct item item = {0};
    struct iatt buf;
    if (!inode || !fetch(client, worker, path, inode->gfid, &item, 0, 0)) {
        free(item.bytes);
        client->stat_misses++;
        call_resume(stub);
        return;
    }
    memcpy(&buf, item.bytes, sizeof buf);
    free(item.bytes);
    client->stat_hits++;
    if (is_fd)
        STACK_UNWIND_STRICT(fstat, frame, 0, 0, &buf, NULL);
    else
        STACK_UNWIND_STRICT(stat, frame, 0, 0, &buf, NULL);
    call_stub_destroy(stub);
}

static int32_t cm_stat(call_frame_t *frame, xlator_t *this, loc_t *loc, dict_t *xdata)
{
    struct client *client = this->private;
    call_stub_t *stub = fop_stat_stub(frame, below_stat, loc, xdata);
    if (stub && workers_try(client->workers, stat_job, stub))
        return 0;
    if (stub)
        call_stub_destroy(stub);
    return below_stat(frame, this, loc, xdata);
}

static int32_t cm_fstat(call_frame_t *frame, xlator_t *this, fd_t *fd, dict_t *xdata)
{
    struct client *client = this->private;
    call_stub_t *stub = fop_fstat_stub(frame, below_fstat, fd, xdata);
    if (stub && workers_try(client->workers, stat_job, stub))
        return 0;
    if (stub)
        call_stub_destroy(stub);
    return below_fstat(frame, this, fd, xdata);
}

/* ---- Read. ---- */

static int32_t below_readv(call_frame_t *frame, xlator_t *this, fd_t *fd, size_t size, off_t offset, uint32_t flags, dict_t *xdata)
{
    STACK_WIND_TAIL(frame, FIRST_CHILD(this), FIRST_CHILD(this)->fops->readv, fd, size, offset, flags, xdata);
    return 0;
}

/* The bytes that a read of `size` at `offset` gets, from whole blocks. -1: they do not fit together. */
static ssize_t gather(const struct client *client, const struct item *items, int blocks, uint64_t first, size_t size, uint64_t offset, uint64_t end, char *to)
{
    uint64_t block_size = client->set.block_size;
    size_t length = offset >= end ? 0 : (end - offset < size ? end - offset : size), done = 0;
    while (done < length) {
        uint64_t at = (offset + done) / block_size - first, inside = (offset + done) % block_size;
        size_t part = block_size - inside < length - done ? block_size - inside : length - done;
        if (at >= (uint64_t)blocks || items[1 + at].length < inside + part)
            return -1;
        memcpy(to + done, items[1 + at].bytes + inside, part);
        done += part;
    }
    return length;
}

static bool answer_read(struct client *client, call_stub_t *stub, struct item *items, int blocks, uint64_t first)
{
    call_frame_t *frame = stub->frame;
    struct iatt buf;
    memcpy(&buf, items[0].bytes, sizeof buf);
    struct iobuf *iobuf = iobuf_get2(frame->this->ctx->iobuf_pool, stub->args.size);
    struct iobref *iobref = iobref_new();
    ssize_t length = -1;
    if (iobuf && iobref && iobref_add(iobref, iobuf) == 0)
        length = gather(client, items, blocks, first, stub->args.size, stub->args.offset, buf.ia_size, iobuf_ptr(iobuf));
    if (length >= 0) {
        struct iovec vector = {.iov_base = iobuf_ptr(iobuf), .iov_len = length};
        STACK_UNWIND_STRICT(readv, frame, length, 0, &vector, 1, &buf, iobref, NULL);
    }
    if (iobuf)
        iobuf_unref(iobuf);
    if (iobref)
        iobref_unref(iobref);
    return length >= 0;
}

static void read_job(struct worker *worker, void *job)
{
    call_stub_t *stub = job;
    struct client *client = stub->frame->this->private;
    uint64_t size = client->set.block_size, first = stub->args.offset / size;
    int blocks = (int)((stub->args.offset + stub->args.size + size - 1) / size - first);
    struct item *items = calloc(1 + blocks, sizeof *items);
    inode_t *inode = stub->args.fd->inode;
    bool served = items && fetch(client, worker, path_of(stub->frame->this, stub->args.fd), inode->gfid, items, first, blocks) &&
                  answer_read(client, stub, items, blocks, first);
    if (items)
        items_free(items, 1 + blocks);
    if (served) {
        client->hits++;
        call_stub_destroy(stub);
    } else {
        client->misses++;
        call_resume(stub);
    }
}

static int32_t cm_readv(call_frame_t *frame, xlator_t *this, fd_t *fd, size_t size, off_t offset, uint32_t flags, dict_t *xdata)
{
    struct client *client = this->private;
    bool asks = size && offset >= 0 && size / client->set.block_size < BANK_BATCH - 2 && !((fd->flags | flags) & O_DIRECT);
    call_stub_t *stub = asks ? fop_readv_stub(frame, below_readv, fd, size, offset, flags, xdata) : NULL;
    if (stub && workers_try(client->workers, read_job, stub))
        return 0;
    if (stub)
        call_stub_destroy(stub);
    return below_readv(frame, this, fd, size, offset, flags, xdata);
}

/* ---- Counters, as an extended attribute that only this translator has. ---- */

static int32_t cm_getxattr(call_frame_t *frame, xlator_t *this, loc_t *loc, const char *name, dict_t *xdata)
{
    struct client *client = this->private;
    if (!name || strcmp(name, COUNTERS)) {
        STACK_WIND_TAIL(frame, FIRST_CHILD(this), FIRST_CHILD(this)->fops->getxattr, loc, name, xdata);
        return 0;
    }
    char text[256];
    snprintf(text, sizeof text, "hits=%" PRIu64 " misses=%" PRIu64 " stat_hits=%" PRIu64 " stat_misses=%" PRIu64 " moved=%" PRIu64, client->hits, client->misses,
             client->stat_hits, client->stat_misses, client->moved);
    dict_t *dict = dict_new();
    int length = dict && dict_set_dynstr_with_alloc(dict, COUNTERS, text) == 0 ? (int)strlen(text) : -1, code = length < 0 ? ENOMEM : 0;
    STACK_UNWIND_STRICT(getxattr, frame, length, code, dict, NULL);
    if (dict)
        dict_unref(dict);
    return 0;
}

/* ---- The translator. ---- */

static int32_t cm_notify(xlator_t *this, int32_t event, void *data, ...)
{
    struct client *client = this->private;
    if (client && event == GF_EVENT_CHILD_UP)
        client->is_up = true;
    if (client && (event == GF_EVENT_CHILD_DOWN || event == GF_EVENT_SOME_DESCENDENT_DOWN))
        client->is_up = false;
    return default_notify(this, event, data);
}

static void cm_fini(xlator_t *this)
{
    struct client *client = this->private;
    this->private = NULL;
    if (!client)
        return;
    workers_end(client->workers);
    words_close(client->words);
    settings_free(&client->set);
    free(client);
}

/* Whether an address is this machine's: only its bricks have words that can be mapped here. A brick of the same name elsewhere has others. */
static bool is_here(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    if (!host || getaddrinfo(host, NULL, &hints, &found) || !found)
        return false;
    int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool here = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(found);
    return here;
}

static int32_t cm_init(xlator_t *this)
{
    char *brick = NULL, *host = NULL;
    if (!this->children || this->children->next) {
        gf_log(this->name, GF_LOG_ERROR, "cmcache stands above one brick's protocol/client, and no other place");
        return -1;
    }
    struct client *client = calloc(1, sizeof *client);
    if (!client)
        return -1;
    pthread_mutex_init(&client->lock, NULL);
    this->private = client;
    if (dict_get_str(FIRST_CHILD(this)->options, "remote-subvolume", &brick) || dict_get_str(FIRST_CHILD(this)->options, "remote-host", &host)) {
        gf_log(this->name, GF_LOG_ERROR, "cmcache stands directly above a protocol/client with remote-host and remote-subvolume");
        cm_fini(this);
        return -1;
    }
    if (settings_take(&client->set, this, brick) || !(client->workers = workers_start(this, client->set.threads, 4096))) {
        cm_fini(this);
        return -1;
    }
    client->is_here = is_here(host);
    if (client->set.is_strong && client->is_here)
        client->words = words_open(client->set.words_path);
    if (client->set.is_strong && !client->is_here)
        gf_log(this->name, GF_LOG_WARNING, "the brick's words are in the memory of %s: from here all is read from the brick", host);
    return 0;
}

static struct xlator_fops cm_fops = {
    .open = cm_open,
    .create = cm_create,
    .stat = cm_stat,
    .fstat = cm_fstat,
    .readv = cm_readv,
    .getxattr = cm_getxattr,
};
static struct xlator_cbks cm_cbks = {.release = cm_release};

xlator_api_t xlator_api = {
    .init = cm_init,
    .fini = cm_fini,
    .notify = cm_notify,
    .op_version = {1},
    .fops = &cm_fops,
    .cbks = &cm_cbks,
    .options = bank_options,
    .identifier = "cmcache",
    .category = GF_EXPERIMENTAL,
};
