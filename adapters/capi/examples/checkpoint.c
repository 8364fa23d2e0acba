/* One process of several that compute together, and go on from the same point if any of them crashes.
 *
 *     cc -std=c11 checkpoint.c -lverbena -o checkpoint
 *     ./checkpoint NAME PROCESS PROCESSES CHECKPOINTS [SOCKET]
 *
 * Each process has a sum, to which step n adds n, and saves it after every step. Process 0, which is started first, makes room. A process that is started
 * again goes on from the newest checkpoint that all have saved, and so do the others, which hear it when they save or wait. Exit codes: 0, 1 for a failure,
 * 2 for wrong arguments. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "verbena.h"

enum { LIMIT_MS = 60000 };

static int fail(const char *doing) {
    char words[512];
    verbena_last_error(words, sizeof words);
    fprintf(stderr, "checkpoint: cannot %s: %s\n", doing, words);
    return EXIT_FAILURE;
}

/* Adds up and saves until `last`, from where it joined. */
static verbena_result compute(verbena_memory *memory, const char *name, uint32_t process, uint64_t last, uint64_t *sum) {
    verbena_joined joined;
    *sum = 0;
    verbena_result result = verbena_checkpoints_join(memory, name, process, &joined, sum, sizeof *sum, NULL);
    if (result != VERBENA_OK)
        return result;
    printf("process %" PRIu32 " goes on from %" PRIu64 " in era %" PRIu64 "\n", process, joined.number, joined.era);
    fflush(stdout);
    for (uint64_t step = joined.number + 1; result == VERBENA_OK && step <= last; step++) {
        *sum += step;
        result = verbena_checkpoints_save(memory, name, process, joined.era, step, sum, sizeof *sum, NULL);
        if (result == VERBENA_OK)
            result = verbena_checkpoints_wait(memory, name, joined.era, step, LIMIT_MS);
    }
    return result;
}

int main(int count, char **arguments) {
    if (count < 5 || count > 6) {
        fprintf(stderr, "usage: %s NAME PROCESS PROCESSES CHECKPOINTS [SOCKET]\n", arguments[0]);
        return 2;
    }
    const char *name = arguments[1], *socket = count > 5 ? arguments[5] : NULL;
    uint32_t process = (uint32_t)strtoul(arguments[2], NULL, 10), processes = (uint32_t)strtoul(arguments[3], NULL, 10);
    uint64_t last = strtoull(arguments[4], NULL, 10), sum;
    verbena_memory *memory;
    if (verbena_memory_connect(socket, 10000, &memory) != VERBENA_OK)
        return fail("connect");

    int code = EXIT_SUCCESS;
    if (process == 0) {
        verbena_result made = verbena_checkpoints_make(memory, name, processes, sizeof sum, 2, 1, NULL);
        if (made != VERBENA_OK && made != VERBENA_EXISTS)
            code = fail("make room");
    }
    verbena_result result = VERBENA_ROLLED_BACK;
    while (code == EXIT_SUCCESS && result == VERBENA_ROLLED_BACK)
        result = compute(memory, name, process, last, &sum);
    if (code == EXIT_SUCCESS && result != VERBENA_OK)
        code = fail("save checkpoints");
    if (code == EXIT_SUCCESS)
        printf("process %" PRIu32 " has %" PRIu64 " at checkpoint %" PRIu64 "\n", process, sum, last);
    verbena_memory_close(memory);
    return code;
}
