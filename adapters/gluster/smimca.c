/* The paper's SMCache (section 4): purge at open, at close and at delete; stat item at open, read and write; blocks at read; after a write the blocks that
 * it touched are read back and stored. Before the answer, or, with `update-thread`, after it. Two writes' read-backs, a fill and a purge may overtake each
 * other, and a client may read an item at any moment: this scheme is not coherent. */

#include "smcache.h"

#include <stdlib.h>
#include <string.h>

#include <glusterfs/syncop.h>

#define PURGED_AT_ONCE 512

enum task { PURGE = 1, STORE_STAT = 2, READ_BACK = 4, STORE_ITEMS = 8 };

/* What a worker does, and then resumes: a fop to wind, or an answer. libglusterfs has no stubs for the answers of open and read. */
struct update {
    xlator_t *this;
    call_stub_t *stub;
    call_frame_t *frame;
    int32_t op_ret;
    fd_t *fd;
    struct iovec *vector;
    int parts;
    struct iatt buf;
    struct iobref *iobref;
    dict_t *xdata;
    int tasks;
    char *path;
    inode_t *inode;
    /* Purge: the file's size as far as it is known. Read back: from `offset`. */
    uint64_t end, offset;
    struct item *items;
    int count;
};

/* The path by which the brick knows a file. NULL if it has none now. */
static char *path_of(inode_t *inode)
{
    char *found = NULL, *path = NULL;
    if (inode && inode_path(inode, NULL, &found) > 0 && found[0] == '/')
        path = strdup(found);
    GF_FREE(found);
    return path;
}

static void remember(xlator_t *this, inode_t *inode, uint64_t end)
{
    uint64_t known = 0;
    inode_ctx_get(inode, this, &known);
    if (end > known)
        inode_ctx_set(inode, this, &end);
}

/* All items that the file may have: the daemons have no list of them, so up to the largest end that was ever stored or seen. */
static void purge(struct server *server, struct worker *worker, struct update *update)
{
    uint64_t known = 0, size = server->set.block_size;
    struct item *items = calloc(PURGED_AT_ONCE, sizeof *items);
    int count = items && name_path_stat(&items[0], update->path) ? 1 : 0;
    inode_ctx_get(update->inode, update->this, &known);
    uint64_t end = update->end > known ? update->end : known;
    for (uint64_t block = 0; count && block * size < end; block++) {
        if (count == PURGED_AT_ONCE) {
            daemons_delete(&server->set.daemons, &worker->links, items, count);
            count = 0;
        }
        count += name_path_block(&items[count], update->path, block, size);
    }
    if (count)
        daemons_delete(&server->set.daemons, &worker->links, items, count);
    free(items);
}

static void store_stat(struct server *server, struct worker *worker, struct update *update)
{
    struct item item = {.length = sizeof(struct iatt)};
    struct iatt buf;
    fd_t *fd = fd_anonymous(update->inode);
    item.bytes = (char *)&buf;
    if (fd && name_path_stat(&item, update->path) && syncop_fstat(FIRST_CHILD(update->this), fd, &buf, NULL, NULL) >= 0)
        daemons_set(&server->set.daemons, &worker->links, &item, 1);
    if (fd)
        fd_unref(fd);
}

/* Cuts what was read from a block's begin into items. Returns how many. */
static int cut(struct server *server, const char *path, uint64_t offset, const struct iovec *vector, int count, size_t length, struct item *items, int room)
{
    uint64_t size = server->set.block_size;
    int made = 0;
    for (size_t done = 0; done < length && made < room; done += size) {
        struct item *item = &items[made];
        item->length = length - done < size ? length - done : size;
        item->bytes = malloc(item->length);
        struct iovec to = {.iov_base = item->bytes, .iov_len = item->length};
        if (!item->bytes)
            break;
        iov_range_copy(&to, 1, 0, vector, count, done, item->length);
        made++;
        if (!name_path_block(item, path, (offset + done) / size, size))
            break;
    }
    return made;
}

static void read_back(struct server *server, struct worker *worker, struct update *update)
{
    uint64_t size = server->set.block_size, from = update->offset / size * size;
    int room = (int)((update->end - from + size - 1) / size), count = 0, made;
    struct item *items = calloc(room, sizeof *items);
    struct iovec *vector = NULL;
    struct iobref *iobref = NULL;
    fd_t *fd = fd_anonymous(update->inode);
    struct item probe;
    int length = -1;
    if (items && fd && name_path_stat(&probe, update->path))
        length = syncop_readv(FIRST_CHILD(update->this), fd, room * size, from, 0, &vector, &count, &iobref, NULL, NULL, NULL);
    if (length > 0) {
        made = cut(server, update->path, from, vector, count, length, items, room);
        daemons_set(&server->set.daemons, &worker->links, items, made);
        remember(update->this, update->inode, from + length);
    }
    GF_FREE(vector);
    if (iobref)
        iobref_unref(iobref);
    if (fd)
        fd_unref(fd);
    if (items)
        items_free(items, room);
}

static void run(struct worker *worker, void *job)
{
    struct update *update = job;
    struct server *server = update->this->private;
    if (update->path && update->inode) {
        if (update->tasks & PURGE)
            purge(server, worker, update);
        if (update->tasks & READ_BACK)
            read_back(server, worker, update);
        if (update->tasks & STORE_ITEMS)
            daemons_set(&server->set.daemons, &worker->links, update->items, update->count);
        if (update->tasks & STORE_STAT)
            store_stat(server, worker, update);
    }
    if (update->stub)
        call_resume(update->stub);
    if (update->frame && update->fd)
        STACK_UNWIND_STRICT(open, update->frame, update->op_ret, 0, update->fd, update->xdata);
    else if (update->frame)
        STACK_UNWIND_STRICT(readv, update->frame, update->op_ret, 0, update->vector, update->parts, &update->buf, update->iobref, update->xdata);
    if (update->fd)
        fd_unref(update->fd);
    if (update->iobref)
        iobref_unref(update->iobref);
    if (update->xdata)
        dict_unref(update->xdata);
    free(update->vector);
    if (update->items)
        items_free(update->items, update->count);
    if (update->inode)
        inode_unref(update->inode);
    free(update->path);
    free(update);
}

static struct update *update_of(xlator_t *this, inode_t *inode, int tasks)
{
    struct server *server = this->private;
    struct update *update = server->set.is_strong ? NULL : calloc(1, sizeof *update);
    if (!update)
        return NULL;
    update->this = this;
    update->tasks = tasks;
    update->inode = inode ? inode_ref(inode) : NULL;
    update->path = path_of(inode);
    return update;
}

static void give(struct update *update)
{
    struct server *server = update->this->private;
    workers_give(server->workers, run, update);
}

/* ---- Open: purged before it goes down; the stat item is new before the answer. ---- */

static int32_t wind_open(call_frame_t *frame, xlator_t *this, loc_t *loc, int32_t flags, fd_t *fd, dict_t *xdata);

static int32_t open_cbk(call_frame_t *frame, void *cookie, xlator_t *this, int32_t op_ret, int32_t op_errno, fd_t *fd, dict_t *xdata)
{
    if (!imca_opened(frame, this, op_ret, op_errno, fd, xdata))
        STACK_UNWIND_STRICT(open, frame, op_ret, op_errno, fd, xdata);
    return 0;
}

static int32_t wind_open(call_frame_t *frame, xlator_t *this, loc_t *loc, int32_t flags, fd_t *fd, dict_t *xdata)
{
    STACK_WIND(frame, open_cbk, FIRST_CHILD(this), FIRST_CHILD(this)->fops->open, loc, flags, fd, xdata);
    return 0;
}

bool imca_open(call_frame_t *frame, xlator_t *this, loc_t *loc, int32_t flags, fd_t *fd, dict_t *xdata)
{
    struct update *update = update_of(this, loc->inode, PURGE);
    if (!update)
        return false;
    update->stub = fop_open_stub(frame, wind_open, loc, flags, fd, xdata);
    if (!update->stub) {
        give(update);
        return false;
    }
    give(update);
    return true;
}

bool imca_opened(call_frame_t *frame, xlator_t *this, int32_t op_ret, int32_t op_errno, fd_t *fd, dict_t *xdata)
{
    struct update *update = op_ret < 0 ? NULL : update_of(this, fd->inode, STORE_STAT);
    if (!update)
        return false;
    update->frame = frame;
    update->op_ret = op_ret;
    update->fd = fd_ref(fd);
    update->xdata = xdata ? dict_ref(xdata) : NULL;
    give(update);
    return true;
}

void imca_released(xlator_t *this, fd_t *fd)
{
    struct update *update = update_of(this, fd->inode, PURGE);
    if (update)
        give(update);
}

/* ---- Delete. The path is the one before it: afterwards the brick has none. ---- */

static int32_t unlink_cbk(call_frame_t *frame, void *cookie, xlator_t *this, int32_t op_ret, int32_t op_errno, struct iatt *pre, struct iatt *post, dict_t *xdata)
{
    struct change *change = frame->local;
    frame->local = NULL;
    if (!imca_unlinked(frame, this, change, op_ret, op_errno, pre, post, xdata))
        STACK_UNWIND_STRICT(unlink, frame, op_ret, op_errno, pre, post, xdata);
    change_free(change);
    return 0;
}

bool imca_unlink(call_frame_t *frame, xlator_t *this, loc_t *loc, int xflags, dict_t *xdata)
{
    struct server *server = this->private;
    struct change *change = server->set.is_strong || !loc->inode ? NULL : calloc(1, sizeof *change);
    if (!change)
        return false;
    change->path = loc->path && loc->path[0] == '/' ? strdup(loc->path) : path_of(loc->inode);
    change->inode = inode_ref(loc->inode);
    frame->local = change;
    STACK_WIND(frame, unlink_cbk, FIRST_CHILD(this), FIRST_CHILD(this)->fops->unlink, loc, xflags, xdata);
    return true;
}

bool imca_unlinked(call_frame_t *frame, xlator_t *this, struct change *change, int32_t op_ret, int32_t op_errno, struct iatt *pre, struct iatt *post, dict_t *xdata)
{
    struct update *update = op_ret < 0 ? NULL : update_of(this, change->inode, PURGE);
    if (!update)
        return false;
    free(update->path);
    update->path = change->path;
    change->path = NULL;
    update->stub = fop_unlink_cbk_stub(frame, NULL, op_ret, op_errno, pre, post, xdata);
    bool answers = update->stub;
    give(update);
    return answers;
}

/* ---- Read and write. ---- */

bool imca_read(call_frame_t *frame, xlator_t *this, struct change *change, struct iovec *whole, int count, size_t length, struct iovec *vector, int32_t part,
               int32_t op_ret, struct iatt *buf, struct iobref *iobref, dict_t *xdata)
{
    struct server *server = this->private;
    struct update *update = update_of(this, change->inode, STORE_ITEMS);
    if (!update)
        return false;
    uint64_t size = server->set.block_size, from = change->offset / size * size;
    int room = (int)((length + size - 1) / size) + 1;
    update->items = calloc(room, sizeof *update->items);
    if (update->items && update->path && name_path_stat(&update->items[0], update->path)) {
        update->items[0].length = sizeof *buf;
        update->items[0].bytes = malloc(sizeof *buf);
        if (update->items[0].bytes) {
            memcpy(update->items[0].bytes, buf, sizeof *buf);
            update->count = 1 + cut(server, update->path, from, whole, count, length, update->items + 1, room - 1);
        }
        remember(this, change->inode, from + length);
    }
    bool answers = false;
    if (!server->set.update_thread) {
        update->vector = calloc(part + 1, sizeof *vector);
        answers = update->vector;
    }
    if (answers) {
        memcpy(update->vector, vector, part * sizeof *vector);
        update->parts = part;
        update->frame = frame;
        update->op_ret = op_ret;
        update->buf = *buf;
        update->iobref = iobref ? iobref_ref(iobref) : NULL;
        update->xdata = xdata ? dict_ref(xdata) : NULL;
    }
    give(update);
    return answers;
}

bool imca_written(call_frame_t *frame, xlator_t *this, struct change *change, int32_t op_ret, int32_t op_errno, struct iatt *pre, struct iatt *post, dict_t *xdata)
{
    struct server *server = this->private;
    struct update *update = op_ret <= 0 ? NULL : update_of(this, change->inode, READ_BACK | STORE_STAT);
    bool answers = false;
    if (!update)
        return false;
    update->offset = change->offset;
    update->end = change->offset + op_ret;
    if (!server->set.update_thread) {
        update->stub = fop_writev_cbk_stub(frame, NULL, op_ret, op_errno, pre, post, xdata);
        answers = update->stub;
    }
    give(update);
    return answers;
}
