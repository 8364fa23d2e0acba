/* What the programs of these tests have in common. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbena.h"

static void last_words(char *words, size_t size) { verbena_last_error(words, size); }

#define expect(what, wanted)                                                                                   \
    do {                                                                                                       \
        int found_ = (int)(what), wanted_ = (int)(wanted);                                                     \
        if (found_ != wanted_) {                                                                               \
            char words_[512];                                                                                  \
            last_words(words_, sizeof words_);                                                                 \
            fprintf(stderr, "line %d: %s is %d and not %d (%s)\n", __LINE__, #what, found_, wanted_, words_);   \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

static int says(const char *part) {
    char words[512];
    last_words(words, sizeof words);
    return strstr(words, part) != NULL;
}
