/* Options of both translators; a volume gives both the same. */
#ifndef VERBENA_BANK_OPTIONS_H
#define VERBENA_BANK_OPTIONS_H

#include "bank.h"

struct settings {
    struct daemons daemons;
    bool is_strong;
    uint64_t block_size;
    int threads;
    /* `imca`, bricks: the worker updates daemons after the answer, not before. */
    bool update_thread;
    char *words_path, *starts_path;
};

/* `brick` is what clients call it: `remote-subvolume`. Says in the log what is wrong, and returns -1. */
int settings_take(struct settings *set, xlator_t *this, const char *brick);
void settings_free(struct settings *set);

extern volume_option_t bank_options[];

#endif
