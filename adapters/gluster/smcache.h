/* SMCache in two parts: what the paper's scheme does at the brick (smimca.c), and the words of `strong` with the table of all fops (smcache.c). */
#ifndef VERBENA_SMCACHE_H
#define VERBENA_SMCACHE_H

#include "options.h"

struct server {
    struct settings set;
    struct workers *workers;
    /* `strong` alone. */
    struct words *words;
};

/* A fop on its way down: the words that it moves, or, under `imca`, the file that is purged when it comes back. */
struct change {
    struct word_set set;
    char *path;
    inode_t *inode;
    uint64_t end;
    /* Reads: what was asked for; create: O_TRUNC was taken off. */
    uint64_t offset;
    size_t size;
    bool truncates;
};

void change_free(struct change *change);

/* ---- smimca.c: each returns false if the scheme has nothing to do there. ---- */

bool imca_open(call_frame_t *frame, xlator_t *this, loc_t *loc, int32_t flags, fd_t *fd, dict_t *xdata);
bool imca_opened(call_frame_t *frame, xlator_t *this, int32_t op_ret, int32_t op_errno, fd_t *fd, dict_t *xdata);
bool imca_unlink(call_frame_t *frame, xlator_t *this, loc_t *loc, int xflags, dict_t *xdata);
bool imca_unlinked(call_frame_t *frame, xlator_t *this, struct change *change, int32_t op_ret, int32_t op_errno, struct iatt *pre, struct iatt *post, dict_t *xdata);
bool imca_read(call_frame_t *frame, xlator_t *this, struct change *change, struct iovec *whole, int count, size_t length, struct iovec *vector, int32_t part,
               int32_t op_ret, struct iatt *buf, struct iobref *iobref, dict_t *xdata);
bool imca_written(call_frame_t *frame, xlator_t *this, struct change *change, int32_t op_ret, int32_t op_errno, struct iatt *pre, struct iatt *post, dict_t *xdata);
void imca_released(xlator_t *this, fd_t *fd);

#endif
