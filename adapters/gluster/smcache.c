/* SMCache: in the brick, below protocol/server and above all that may answer from memory (B12).
 *
 * `strong`: each fop that changes something moves words before it goes down, and again when it comes back, before the answer (B6). The table below names
 * every fop of this GlusterFS and the words that it moves (B4). Reads and stats come with items for the bank: the words are read, then the bytes, then the
 * words again; equal and not busy, the items are stored under the first ones (B8). A job that the workers have no room for is dropped: that costs misses.
 */

#include "smcache.h"

#include <stdlib.h>
#include <string.h>

/* A newer GlusterFS may have a fop that the table lacks. */
_Static_assert(GF_FOP_MAXVALUE == 59, "name the words that the new fops move");

void change_free(struct change *change)
{
    if (!change)
        return;
    if (change->inode)
        inode_unref(change->inode);
    free(change->path);
    free(change);
}

static bool is_null(const unsigned char *gfid)
{
    static const unsigned char none[16];
    return !memcmp(gfid, none, sizeof none);
}

static const unsigned char *of_inode(inode_t *inode)
{
    return inode ? inode->gfid : NULL;
}

static const unsigned char *of(loc_t *loc)
{
    return loc->inode && !is_null(loc->inode->gfid) ? loc->inode->gfid : loc->gfid;
}

static const unsigned char *parent(loc_t *loc)
{
    return loc->parent && !is_null(loc->parent->gfid) ? loc->parent->gfid : loc->pargfid;
}

static void attributes(struct word_set *set, const unsigned char *gfid)
{
    words_add(set, gfid, WORD_ATTRIBUTES, 0);
}

static void content(struct word_set *set, const unsigned char *gfid)
{
    attributes(set, gfid);
    words_add(set, gfid, WORD_FILE, 0);
}

static void everything(struct word_set *set)
{
    set->everything = true;
}

/* A file that appends writes where its end is, whatever the offset says. */
static void written(struct word_set *set, fd_t *fd, off_t offset, size_t length, uint32_t flags)
{
    attributes(set, of_inode(fd->inode));
    if ((fd->flags | flags) & O_APPEND || offset < 0)
        words_add(set, of_inode(fd->inode), WORD_FILE, 0);
    else
        words_add_range(set, of_inode(fd->inode), offset, length);
}

static void begin(call_frame_t *frame, xlator_t *this, struct change *change)
{
    struct server *server = this->private;
    frame->local = change;
    if (server->words)
        words_begin(server->words, &change->set);
}

static struct change *end(call_frame_t *frame, xlator_t *this)
{
    struct server *server = this->private;
    struct change *change = frame->local;
    frame->local = NULL;
    if (server->words && change)
        words_end(server->words, &change->set);
    return change;
}

/* ---- The table: fop, its arguments, the words. `ANSWERS` is what comes back. ---- */

#define LIST(...) __VA_ARGS__
#define ANSWERS(fop, parameters, arguments)                                                                                                                \
    static int32_t fop##_cbk(call_frame_t *frame, void *cookie, xlator_t *this, int32_t op_ret, int32_t op_errno, parameters, dict_t *xdata)              \
    {                                                                                                                                                      \
        change_free(end(frame, this));                                                                                                                     \
        STACK_UNWIND_STRICT(fop, frame, op_ret, op_errno, arguments, xdata);                                                                               \
        return 0;                                                                                                                                          \
    }
#define ANSWERS_NOTHING(fop)                                                                                                                               \
    static int32_t fop##_cbk(call_frame_t *frame, void *cookie, xlator_t *this, int32_t op_ret, int32_t op_errno, dict_t *xdata)                          \
    {                                                                                                                                                      \
        change_free(end(frame, this));                                                                                                                     \
        STACK_UNWIND_STRICT(fop, frame, op_ret, op_errno, xdata);                                                                                          \
        return 0;                                                                                                                                          \
    }
/* What libglusterfs does not export. */
#define FAILS(fop, ...)                                                                                                                                    \
    static int32_t fails_##fop(call_frame_t *frame)                                                                                                        \
    {                                                                                                                                                      \
        STACK_UNWIND_STRICT(fop, frame, -1, ENOMEM, __VA_ARGS__);                                                                                          \
        return 0;                                                                                                                                          \
    }
FAILS(icreate, NULL, NULL, NULL)
FAILS(namelink, NULL, NULL, NULL)
FAILS(ipc, NULL)
#define MOVES(fop, parameters, arguments, words) MOVES_OR(fop, default_##fop##_failure_cbk(frame, ENOMEM), LIST(parameters), LIST(arguments), words)
#define MOVES_OR(fop, failure, parameters, arguments, words)                                                                                                          \
    static int32_t sm_##fop(call_frame_t *frame, xlator_t *this, parameters, dict_t *xdata)                                                                \
    {                                                                                                                                                      \
        struct change *change = calloc(1, sizeof *change);                                                                                                 \
        if (!change)                                                                                                                                       \
            return failure;                                                                                                                                \
        struct word_set *set = &change->set;                                                                                                               \
        words;                                                                                                                                             \
        begin(frame, this, change);                                                                                                                        \
        STACK_WIND(frame, fop##_cbk, FIRST_CHILD(this), FIRST_CHILD(this)->fops->fop, arguments, xdata);                                                   \
        return 0;                                                                                                                                          \
    }
#define TWO LIST(struct iatt *pre, struct iatt *post)
#define ENTRY LIST(inode_t *inode, struct iatt *buf, struct iatt *pre, struct iatt *post)

ANSWERS(truncate, LIST(TWO), LIST(pre, post))
ANSWERS(ftruncate, LIST(TWO), LIST(pre, post))
ANSWERS(setattr, LIST(TWO), LIST(pre, post))
ANSWERS(fsetattr, LIST(TWO), LIST(pre, post))
ANSWERS(fallocate, LIST(TWO), LIST(pre, post))
ANSWERS(discard, LIST(TWO), LIST(pre, post))
ANSWERS(zerofill, LIST(TWO), LIST(pre, post))
ANSWERS(unlink, LIST(TWO), LIST(pre, post))
ANSWERS(rmdir, LIST(TWO), LIST(pre, post))
ANSWERS(mknod, LIST(ENTRY), LIST(inode, buf, pre, post))
ANSWERS(mkdir, LIST(ENTRY), LIST(inode, buf, pre, post))
ANSWERS(symlink, LIST(ENTRY), LIST(inode, buf, pre, post))
ANSWERS(link, LIST(ENTRY), LIST(inode, buf, pre, post))
ANSWERS(put, LIST(ENTRY), LIST(inode, buf, pre, post))
ANSWERS(rename, LIST(struct iatt *buf, struct iatt *a, struct iatt *b, struct iatt *c, struct iatt *d), LIST(buf, a, b, c, d))
ANSWERS(xattrop, LIST(dict_t *xattr), LIST(xattr))
ANSWERS(fxattrop, LIST(dict_t *xattr), LIST(xattr))
ANSWERS(icreate, LIST(inode_t *inode, struct iatt *buf), LIST(inode, buf))
ANSWERS(namelink, LIST(TWO), LIST(pre, post))
ANSWERS(copy_file_range, LIST(struct iatt *buf, struct iatt *pre, struct iatt *post), LIST(buf, pre, post))
ANSWERS_NOTHING(setxattr)
ANSWERS_NOTHING(fsetxattr)
ANSWERS_NOTHING(removexattr)
ANSWERS_NOTHING(fremovexattr)
ANSWERS_NOTHING(ipc)

MOVES(truncate, LIST(loc_t *loc, off_t offset), LIST(loc, offset), content(set, of(loc)))
MOVES(ftruncate, LIST(fd_t *fd, off_t offset), LIST(fd, offset), content(set, of_inode(fd->inode)))
MOVES(setattr, LIST(loc_t *loc, struct iatt *buf, int32_t valid), LIST(loc, buf, valid), attributes(set, of(loc)))
MOVES(fsetattr, LIST(fd_t *fd, struct iatt *buf, int32_t valid), LIST(fd, buf, valid), attributes(set, of_inode(fd->inode)))
MOVES(fallocate, LIST(fd_t *fd, int32_t mode, off_t offset, size_t length), LIST(fd, mode, offset, length), content(set, of_inode(fd->inode)))
MOVES(discard, LIST(fd_t *fd, off_t offset, size_t length), LIST(fd, offset, length), content(set, of_inode(fd->inode)))
MOVES(zerofill, LIST(fd_t *fd, off_t offset, off_t length), LIST(fd, offset, length), content(set, of_inode(fd->inode)))
MOVES(rmdir, LIST(loc_t *loc, int flags), LIST(loc, flags), attributes(set, of(loc)); attributes(set, parent(loc)))
MOVES(mknod, LIST(loc_t *loc, mode_t mode, dev_t device, mode_t umask), LIST(loc, mode, device, umask), attributes(set, parent(loc)))
MOVES(mkdir, LIST(loc_t *loc, mode_t mode, mode_t umask), LIST(loc, mode, umask), attributes(set, parent(loc)))
MOVES(symlink, LIST(const char *to, loc_t *loc, mode_t umask), LIST(to, loc, umask), attributes(set, parent(loc)))
MOVES(link, LIST(loc_t *from, loc_t *to), LIST(from, to), attributes(set, of(from)); attributes(set, parent(to)))
/* What stood at the new name, if anything did, loses a link. */
MOVES(rename, LIST(loc_t *from, loc_t *to), LIST(from, to), attributes(set, of(from)); attributes(set, parent(from)); attributes(set, parent(to));
      if (to->inode) attributes(set, of(to)))
MOVES(setxattr, LIST(loc_t *loc, dict_t *dict, int32_t flags), LIST(loc, dict, flags), attributes(set, of(loc)))
MOVES(fsetxattr, LIST(fd_t *fd, dict_t *dict, int32_t flags), LIST(fd, dict, flags), attributes(set, of_inode(fd->inode)))
MOVES(removexattr, LIST(loc_t *loc, const char *name), LIST(loc, name), attributes(set, of(loc)))
MOVES(fremovexattr, LIST(fd_t *fd, const char *name), LIST(fd, name), attributes(set, of_inode(fd->inode)))
MOVES(xattrop, LIST(loc_t *loc, gf_xattrop_flags_t kind, dict_t *dict), LIST(loc, kind, dict), attributes(set, of(loc)))
MOVES(fxattrop, LIST(fd_t *fd, gf_xattrop_flags_t kind, dict_t *dict), LIST(fd, kind, dict), attributes(set, of_inode(fd->inode)))
MOVES(copy_file_range, LIST(fd_t *in, off64_t from, fd_t *out, off64_t to, size_t length, uint32_t flags), LIST(in, from, out, to, length, flags),
      content(set, of_inode(out->inode)))
/* These name no file before they are done, or do what the caller says. */
MOVES(put, LIST(loc_t *loc, mode_t mode, mode_t umask, uint32_t flags, struct iovec *vector, int32_t count, off_t offset, struct iobref *iobref, dict_t *xattr),
      LIST(loc, mode, umask, flags, vector, count, offset, iobref, xattr), everything(set))
MOVES_OR(icreate, fails_icreate(frame), LIST(loc_t *loc, mode_t mode), LIST(loc, mode), everything(set))
MOVES_OR(namelink, fails_namelink(frame), LIST(loc_t *loc), LIST(loc), everything(set))
MOVES_OR(ipc, fails_ipc(frame), LIST(int32_t op), LIST(op), everything(set))
/* No words: lookup, stat, fstat, access, readlink, readv, flush, fsync, fsyncdir, opendir, readdir, readdirp, statfs, getxattr, fgetxattr, lk, inodelk,
 * finodelk, entrylk, fentrylk, rchecksum, getspec, seek, lease, getactivelk, setactivelk. The time of the last access is as old as the item. */

static int32_t sm_unlink(call_frame_t *frame, xlator_t *this, loc_t *loc, int flags, dict_t *xdata)
{
    if (imca_unlink(frame, this, loc, flags, xdata))
        return 0;
    struct change *change = calloc(1, sizeof *change);
    if (!change)
        return default_unlink_failure_cbk(frame, ENOMEM);
    attributes(&change->set, of(loc));
    attributes(&change->set, parent(loc));
    begin(frame, this, change);
    STACK_WIND(frame, unlink_cbk, FIRST_CHILD(this), FIRST_CHILD(this)->fops->unlink, loc, flags, xdata);
    return 0;
}

static int32_t writev_cbk(call_frame_t *frame, void *cookie, xlator_t *this, int32_t op_ret, int32_t op_errno, struct iatt *pre, struct iatt *post, dict_t *xdata)
{
    struct change *change = end(frame, this);
    if (!imca_written(frame, this, change, op_ret, op_errno, pre, post, xdata))
        STACK_UNWIND_STRICT(writev, frame, op_ret, op_errno, pre, post, xdata);
    change_free(change);
    return 0;
}

static int32_t sm_writev(call_frame_t *frame, xlator_t *this, fd_t *fd, struct iovec *vector, int32_t count, off_t offset, uint32_t flags, struct iobref *iobref,
                         dict_t *xdata)
{
    struct change *change = calloc(1, sizeof *change);
    if (!change)
        return default_writev_failure_cbk(frame, ENOMEM);
    written(&change->set, fd, offset, iov_length(vector, count), flags);
    change->inode = inode_ref(fd->inode);
    change->offset = offset;
    begin(frame, this, change);
    STACK_WIND(frame, writev_cbk, FIRST_CHILD(this), FIRST_CHILD(this)->fops->writev, fd, vector, count, offset, flags, iobref, xdata);
    return 0;
}

static int32_t open_cbk(call_frame_t *frame, void *cookie, xlator_t *this, int32_t op_ret, int32_t op_errno, fd_t *fd, dict_t *xdata)
{
    change_free(end(frame, this));
    STACK_UNWIND_STRICT(open, frame, op_ret, op_errno, fd, xdata);
    return 0;
}

static int32_t sm_open(call_frame_t *frame, xlator_t *this, loc_t *loc, int32_t flags, fd_t *fd, dict_t *xdata)
{
    if (imca_open(frame, this, loc, flags, fd, xdata))
        return 0;
    struct change *change = calloc(1, sizeof *change);
    if (!change)
        return default_open_failure_cbk(frame, ENOMEM);
    if (flags & O_TRUNC)
        content(&change->set, of(loc));
    begin(frame, this, change);
    STACK_WIND(frame, open_cbk, FIRST_CHILD(this), FIRST_CHILD(this)->fops->open, loc, flags, fd, xdata);
    return 0;
}

/* ---- Create: which file a race finds there is known only when it is back, so O_TRUNC is done then, under that file's words. ---- */

struct created {
    fd_t *fd;
    inode_t *inode;
    dict_t *xdata;
    struct iatt pre, post;
};

static int32_t emptied_cbk(call_frame_t *frame, void *cookie, xlator_t *this, int32_t op_ret, int32_t op_errno, struct iatt *pre, struct iatt *post, dict_t *xdata)
{
    struct created *created = cookie;
    change_free(end(frame, this));
    STACK_UNWIND_STRICT(create, frame, op_ret, op_errno, created->fd, created->inode, post, &created->pre, &created->post, created->xdata);
    fd_unref(created->fd);
    inode_unref(created->inode);
    if (created->xdata)
        dict_unref(created->xdata);
    free(created);
    return 0;
}

static int32_t create_cbk(call_frame_t *frame, void *cookie, xlator_t *this, int32_t op_ret, int32_t op_errno, fd_t *fd, inode_t *inode, struct iatt *buf,
                          struct iatt *pre, struct iatt *post, dict_t *xdata)
{
    struct change *change = end(frame, this);
    bool truncates = op_ret >= 0 && change->truncates && buf->ia_size;
    change_free(change);
    change = truncates ? calloc(1, sizeof *change) : NULL;
    struct created *created = change ? malloc(sizeof *created) : NULL;
    if (created) {
        *created = (struct created){fd_ref(fd), inode_ref(inode), xdata ? dict_ref(xdata) : NULL, *pre, *post};
        content(&change->set, buf->ia_gfid);
        begin(frame, this, change);
        STACK_WIND_COOKIE(frame, emptied_cbk, created, FIRST_CHILD(this), FIRST_CHILD(this)->fops->ftruncate, fd, 0, NULL);
        return 0;
    }
    free(change);
    if (truncates) {
        op_ret = -1;
        op_errno = ENOMEM;
    }
    STACK_UNWIND_STRICT(create, frame, op_ret, op_errno, fd, inode, buf, pre, post, xdata);
    return 0;
}

static int32_t sm_create(call_frame_t *frame, xlator_t *this, loc_t *loc, int32_t flags, mode_t mode, mode_t umask, fd_t *fd, dict_t *xdata)
{
    struct server *server = this->private;
    struct change *change = calloc(1, sizeof *change);
    if (!change)
        return default_create_failure_cbk(frame, ENOMEM);
    change->truncates = server->set.is_strong && (flags & O_TRUNC);
    attributes(&change->set, parent(loc));
    begin(frame, this, change);
    flags &= change->truncates ? ~O_TRUNC : ~0;
    STACK_WIND(frame, create_cbk, FIRST_CHILD(this), FIRST_CHILD(this)->fops->create, loc, flags, mode, umask, fd, xdata);
    return 0;
}

/* ---- Reads and stats, which fill. ---- */

struct fill {
    struct server *server;
    int count;
    struct item items[];
};

static void fill_job(struct worker *worker, void *job)
{
    struct fill *fill = job;
    daemons_set(&fill->server->set.daemons, &worker->links, fill->items, fill->count);
    for (int at = 0; at < fill->count; at++)
        free(fill->items[at].bytes);
    free(fill);
}

/* Stores attributes, and whole blocks from `offset` on, under the words that were looked at before they were read. */
static void fill(struct server *server, struct change *change, struct iatt *buf, uint64_t offset, const struct iovec *vector, int count, size_t length)
{
    uint64_t size = server->set.block_size;
    int blocks = (int)((length + size - 1) / size);
    const unsigned char *gfid = buf->ia_gfid;
    const uint64_t generations[2] = {change->set.everything_seen, change->set.seen[0]};
    if (!words_same(server->words, &change->set))
        return;
    struct fill *fill = calloc(1, sizeof *fill + (1 + blocks) * sizeof *fill->items);
    if (!fill)
        return;
    fill->server = server;
    for (int at = 0; at <= blocks; at++) {
        struct item *item = &fill->items[at];
        size_t done = at ? (at - 1) * size : 0;
        item->length = !at ? sizeof *buf : length - done < size ? length - done : size;
        item->bytes = malloc(item->length);
        if (!item->bytes)
            break;
        fill->count++;
        if (!at) {
            memcpy(item->bytes, buf, sizeof *buf);
            name_stat(item, server->set.daemons.secret, gfid, generations);
            continue;
        }
        struct iovec to = {.iov_base = item->bytes, .iov_len = item->length};
        uint64_t chunk = ((offset + done) >> CHUNK_SHIFT) - (offset >> CHUNK_SHIFT);
        const uint64_t three[3] = {change->set.everything_seen, change->set.seen[1], change->set.seen[2 + chunk]};
        iov_range_copy(&to, 1, 0, vector, count, done, item->length);
        name_block(item, server->set.daemons.secret, gfid, three, (offset + done) / size, size);
    }
    if (!workers_try(server->workers, fill_job, fill)) {
        for (int at = 0; at < fill->count; at++)
            free(fill->items[at].bytes);
        free(fill);
    }
}

static int32_t readv_cbk(call_frame_t *frame, void *cookie, xlator_t *this, int32_t op_ret, int32_t op_errno, struct iovec *vector, int32_t count, struct iatt *buf,
                         struct iobref *iobref, dict_t *xdata)
{
    struct server *server = this->private;
    struct change *change = frame->local;
    frame->local = NULL;
    struct iovec *part = NULL;
    int parts = 0;
    size_t length = op_ret > 0 ? op_ret : 0;
    if (op_ret >= 0) {
        uint64_t from = change->offset / server->set.block_size * server->set.block_size, skip = change->offset - from;
        op_ret = length > skip ? (length - skip < change->size ? length - skip : change->size) : 0;
        parts = iov_subset(vector, count, skip, op_ret, &part, 0);
        if (parts < 0) {
            op_ret = -1;
            op_errno = ENOMEM;
        } else if (server->words && !change->set.everything) {
            fill(server, change, buf, from, vector, count, length);
        }
    }
    if (op_ret < 0 || !imca_read(frame, this, change, vector, count, length, part, parts, op_ret, buf, iobref, xdata))
        STACK_UNWIND_STRICT(readv, frame, op_ret, op_errno, part, parts, buf, iobref, xdata);
    GF_FREE(part);
    change_free(change);
    return 0;
}

static int32_t sm_readv(call_frame_t *frame, xlator_t *this, fd_t *fd, size_t size, off_t offset, uint32_t flags, dict_t *xdata)
{
    struct server *server = this->private;
    uint64_t block = server->set.block_size, from = offset / block * block, to = (offset + size + block - 1) / block * block;
    bool caches = size && offset >= 0 && (to - from) / block < BANK_BATCH && !((fd->flags | flags) & O_DIRECT);
    struct change *change = caches ? calloc(1, sizeof *change) : NULL;
    if (!change) {
        STACK_WIND_TAIL(frame, FIRST_CHILD(this), FIRST_CHILD(this)->fops->readv, fd, size, offset, flags, xdata);
        return 0;
    }
    change->offset = offset;
    change->size = size;
    change->inode = inode_ref(fd->inode);
    if (server->words) {
        content(&change->set, of_inode(fd->inode));
        words_add_range(&change->set, of_inode(fd->inode), from, to - from);
        /* Not to be stored: a word is busy, or there are too many. */
        bool one_each = change->set.count == (int)(((to - 1) >> CHUNK_SHIFT) - (from >> CHUNK_SHIFT)) + 3;
        if (!one_each || (!words_look(server->words, &change->set) && !without("B8")))
            change->set.everything = true;
    }
    frame->local = change;
    STACK_WIND(frame, readv_cbk, FIRST_CHILD(this), FIRST_CHILD(this)->fops->readv, fd, to - from, from, flags, xdata);
    return 0;
}

#define STATS(fop, type, argument, gfid)                                                                                                                   \
    static int32_t fop##_cbk(call_frame_t *frame, void *cookie, xlator_t *this, int32_t op_ret, int32_t op_errno, struct iatt *buf, dict_t *xdata)        \
    {                                                                                                                                                      \
        struct change *change = frame->local;                                                                                                              \
        frame->local = NULL;                                                                                                                               \
        if (op_ret >= 0)                                                                                                                                   \
            fill(this->private, change, buf, 0, NULL, 0, 0);                                                                                               \
        change_free(change);                                                                                                                               \
        STACK_UNWIND_STRICT(fop, frame, op_ret, op_errno, buf, xdata);                                                                                     \
        return 0;                                                                                                                                          \
    }                                                                                                                                                      \
    static int32_t sm_##fop(call_frame_t *frame, xlator_t *this, type argument, dict_t *xdata)                                                             \
    {                                                                                                                                                      \
        struct server *server = this->private;                                                                                                             \
        struct change *change = server->words ? calloc(1, sizeof *change) : NULL;                                                                          \
        if (change) {                                                                                                                                      \
            content(&change->set, gfid);                                                                                                                   \
            if (words_look(server->words, &change->set) || without("B8")) {                                                                                \
                frame->local = change;                                                                                                                     \
                STACK_WIND(frame, fop##_cbk, FIRST_CHILD(this), FIRST_CHILD(this)->fops->fop, argument, xdata);                                            \
                return 0;                                                                                                                                  \
            }                                                                                                                                              \
            change_free(change);                                                                                                                           \
        }                                                                                                                                                  \
        STACK_WIND_TAIL(frame, FIRST_CHILD(this), FIRST_CHILD(this)->fops->fop, argument, xdata);                                                          \
        return 0;                                                                                                                                          \
    }
STATS(stat, loc_t *, loc, of(loc))
STATS(fstat, fd_t *, fd, of_inode(fd->inode))

/* ---- The translator. ---- */

static int32_t sm_release(xlator_t *this, fd_t *fd)
{
    imca_released(this, fd);
    return 0;
}

static void sm_fini(xlator_t *this)
{
    struct server *server = this->private;
    this->private = NULL;
    if (!server)
        return;
    workers_end(server->workers);
    words_close(server->words);
    settings_free(&server->set);
    free(server);
}

static int32_t sm_init(xlator_t *this)
{
    const char *why = NULL, *brick = this->name;
    if (!this->children || this->children->next) {
        gf_log(this->name, GF_LOG_ERROR, "smcache stands above one brick's storage");
        return -1;
    }
    struct server *server = calloc(1, sizeof *server);
    if (!server)
        return -1;
    this->private = server;
    /* The translator that protocol/server shows is the brick: this one, or the one above. */
    if (this->parents && strcmp(this->parents->xlator->type, "protocol/server"))
        brick = this->parents->xlator->name;
    if (settings_take(&server->set, this, brick) || !(server->workers = workers_start(this, server->set.threads, 4096)))
        goto failed;
    if (server->set.is_strong) {
        server->words = words_create(server->set.words_path, server->set.starts_path, &why);
        if (!server->words) {
            gf_log(this->name, GF_LOG_ERROR, "scheme strong: %s (words %s, starts %s)", why, server->set.words_path, server->set.starts_path);
            goto failed;
        }
    }
    return 0;
failed:
    sm_fini(this);
    return -1;
}

static struct xlator_fops sm_fops = {
    .stat = sm_stat, .fstat = sm_fstat, .readv = sm_readv, .open = sm_open, .create = sm_create, .writev = sm_writev, .unlink = sm_unlink,
    .truncate = sm_truncate, .ftruncate = sm_ftruncate, .setattr = sm_setattr, .fsetattr = sm_fsetattr, .fallocate = sm_fallocate, .discard = sm_discard,
    .zerofill = sm_zerofill, .rmdir = sm_rmdir, .mknod = sm_mknod, .mkdir = sm_mkdir, .symlink = sm_symlink, .link = sm_link, .rename = sm_rename,
    .setxattr = sm_setxattr, .fsetxattr = sm_fsetxattr, .removexattr = sm_removexattr, .fremovexattr = sm_fremovexattr, .xattrop = sm_xattrop,
    .fxattrop = sm_fxattrop, .copy_file_range = sm_copy_file_range, .put = sm_put, .icreate = sm_icreate, .namelink = sm_namelink, .ipc = sm_ipc,
};
static struct xlator_cbks sm_cbks = {.release = sm_release};

xlator_api_t xlator_api = {
    .init = sm_init,
    .fini = sm_fini,
    .op_version = {1},
    .fops = &sm_fops,
    .cbks = &sm_cbks,
    .options = bank_options,
    .identifier = "smcache",
    .category = GF_EXPERIMENTAL,
};
