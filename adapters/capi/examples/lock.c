/* A critical section of the whole cluster: a counter in a file that any machine may raise.
 *
 *     cc -std=c11 lock.c -lverbena -o lock
 *     ./lock NAME FILE [SOCKET [LIMIT_MS]]
 *
 * The file is written only by who holds the lock, and holds the token of its last writer: whoever lost the lock without knowing it yet has a
 * smaller token than that, and writes nothing. Exit codes: 0, 1 for a failure, 75 if the lock was not free in time, 76 if it was lost. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbena.h"

enum { NOT_IN_TIME = 75, LOST = 76 };

static int fail(const char *doing, verbena_result result) {
    char words[512];
    verbena_last_error(words, sizeof words);
    fprintf(stderr, "lock: cannot %s: %s\n", doing, words);
    return result == VERBENA_NOT_IN_TIME ? NOT_IN_TIME : result == VERBENA_LOST ? LOST : EXIT_FAILURE;
}

/* What is in the file: a number, and the token of who wrote it. Nothing is 0 and 0. */
static int read_counter(const char *path, uint64_t *number, uint64_t *token) {
    *number = *token = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return errno == ENOENT;
    int found = fscanf(file, "%" SCNu64 " %" SCNu64, number, token);
    return fclose(file) == 0 && found == 2;
}

/* A file beside it takes its name, so that nobody reads half of one. */
static int write_counter(const char *path, uint64_t number, uint64_t token) {
    char beside[4096];
    int length = snprintf(beside, sizeof beside, "%s.%" PRIu64, path, token);
    if (length < 0 || (size_t)length >= sizeof beside)
        return 0;
    FILE *file = fopen(beside, "w");
    if (file == NULL)
        return 0;
    int written = fprintf(file, "%" PRIu64 " %" PRIu64 "\n", number, token) > 0;
    return fclose(file) == 0 && written && rename(beside, path) == 0;
}

static int raise_counter(verbena_locks *locks, const verbena_hold *hold, const char *path) {
    uint64_t token = verbena_token(locks, hold), number, last;
    if (!read_counter(path, &number, &last)) {
        fprintf(stderr, "lock: cannot read %s\n", path);
        return EXIT_FAILURE;
    }
    /* As late as possible; what comes between this and the writing is what the token is for. */
    if (last > token || !verbena_is_held(locks, hold)) {
        fprintf(stderr, "lock: the lock was lost: %s is as it was\n", path);
        return LOST;
    }
    if (!write_counter(path, number + 1, token)) {
        fprintf(stderr, "lock: cannot write %s\n", path);
        return EXIT_FAILURE;
    }
    printf("%" PRIu64 " under token %" PRIu64 ", good for %" PRIu64 " ms more\n", number + 1, token,
           verbena_good_for_ns(locks, hold) / 1000000);
    return EXIT_SUCCESS;
}

int main(int count, char **arguments) {
    if (count < 3 || count > 5) {
        fprintf(stderr, "usage: %s NAME FILE [SOCKET [LIMIT_MS]]\n", arguments[0]);
        return 2;
    }
    const char *name = arguments[1], *path = arguments[2], *socket = count > 3 ? arguments[3] : NULL;
    int64_t limit_ms = count > 4 ? strtoll(arguments[4], NULL, 10) : VERBENA_NO_LIMIT;

    verbena_locks *locks;
    verbena_result result = verbena_connect(socket, 5000, &locks);
    if (result != VERBENA_OK)
        return fail("connect", result);

    int code;
    verbena_hold hold;
    result = verbena_acquire(locks, name, strlen(name), VERBENA_EXCLUSIVE, limit_ms, &hold);
    if (result != VERBENA_OK) {
        code = fail("take the lock", result);
    } else {
        code = raise_counter(locks, &hold, path);
        result = verbena_release(locks, &hold);
        if (result != VERBENA_OK && code == EXIT_SUCCESS)
            code = fail("release the lock", result);
    }
    verbena_close(locks);
    return code;
}
