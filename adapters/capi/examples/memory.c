/* A table of counters that programs on all machines of a cluster raise.
 *
 *     cc -std=c11 memory.c -lverbena -o memory
 *     ./memory TABLE COUNTER TIMES [SOCKET]
 *
 * The table is a segment of that name, which whoever comes first makes. Who raises a counter puts it over the version that it had read: if another program
 * was faster nothing is put, and it reads again. Exit codes: 0, 1 for a failure, 2 for wrong arguments. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "verbena.h"

enum { COUNTERS = 64 };

static int fail(const char *doing) {
    char words[512];
    verbena_last_error(words, sizeof words);
    fprintf(stderr, "memory: cannot %s: %s\n", doing, words);
    return EXIT_FAILURE;
}

static verbena_result open_table(verbena_memory *memory, const char *name, verbena_segment *table) {
    verbena_result result = verbena_memory_find(memory, name, table);
    if (result == VERBENA_NOT_FOUND)
        result = verbena_memory_allocate(memory, name, COUNTERS * sizeof(uint64_t), "strict", 0, 0, "most-free", table);
    /* Another program made it in between. */
    return result == VERBENA_EXISTS ? verbena_memory_find(memory, name, table) : result;
}

static verbena_result raise_counter(verbena_memory *memory, const verbena_segment *table, uint64_t counter,
                                    uint64_t *number, uint64_t *again) {
    for (;; ++*again) {
        uint64_t offset = counter * sizeof *number, version;
        verbena_result result = verbena_memory_get(memory, table, offset, number, sizeof *number, &version, NULL);
        if (result != VERBENA_OK)
            return result;
        ++*number;
        result = verbena_memory_put(memory, table, offset, number, sizeof *number, &version, NULL);
        if (result != VERBENA_CONFLICT)
            return result;
    }
}

int main(int count, char **arguments) {
    if (count < 4 || count > 5 || strtoull(arguments[2], NULL, 10) >= COUNTERS) {
        fprintf(stderr, "usage: %s TABLE COUNTER TIMES [SOCKET], with a counter below %d\n", arguments[0], COUNTERS);
        return 2;
    }
    const char *name = arguments[1], *socket = count > 4 ? arguments[4] : NULL;
    uint64_t counter = strtoull(arguments[2], NULL, 10), times = strtoull(arguments[3], NULL, 10);
    verbena_memory *memory;
    if (verbena_memory_connect(socket, 10000, &memory) != VERBENA_OK)
        return fail("connect");

    int code = EXIT_SUCCESS;
    verbena_segment table;
    verbena_segment_info info;
    uint64_t number = 0, again = 0;
    if (open_table(memory, name, &table) != VERBENA_OK || verbena_memory_stat(memory, &table, &info) != VERBENA_OK)
        code = fail("open the table");
    for (uint64_t time = 0; code == EXIT_SUCCESS && time < times; time++)
        if (raise_counter(memory, &table, counter, &number, &again) != VERBENA_OK)
            code = fail("raise the counter");
    if (code == EXIT_SUCCESS)
        printf("counter %" PRIu64 " at %s is %" PRIu64 "; others were faster %" PRIu64 " times\n", counter, info.home,
               number, again);
    verbena_memory_close(memory);
    return code;
}
