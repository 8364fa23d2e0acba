#include "options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

volume_option_t bank_options[] = {
    {.key = {"daemons"}, .type = GF_OPTION_TYPE_STR, .description = "HOST:PORT,HOST:PORT or paths of sockets: memcached daemons, in one order everywhere"},
    {.key = {"scheme"}, .type = GF_OPTION_TYPE_STR, .value = {"imca", "strong"}, .default_value = "strong"},
    {.key = {"placement"}, .type = GF_OPTION_TYPE_STR, .value = {"crc32", "modulo"}, .default_value = "crc32"},
    {.key = {"block-size"}, .type = GF_OPTION_TYPE_SIZET, .min = 256, .max = 1048576, .default_value = "65536"},
    {.key = {"bank-threads"}, .type = GF_OPTION_TYPE_INT, .min = 1, .max = 64, .default_value = "4"},
    {.key = {"deadline-ms"}, .type = GF_OPTION_TYPE_INT, .min = 1, .max = 10000, .default_value = "100"},
    {.key = {"update-thread"}, .type = GF_OPTION_TYPE_BOOL, .default_value = "off"},
    {.key = {"words"}, .type = GF_OPTION_TYPE_STR, .default_value = "/dev/shm", .description = "strong: a folder, in memory, for files that bricks make and clients on their machine map"},
    {.key = {"starts"}, .type = GF_OPTION_TYPE_STR, .default_value = "/var/lib/glusterd", .description = "strong, bricks: a folder, on disk, for files that count the bricks' starts"},
    {.key = {"secret"}, .type = GF_OPTION_TYPE_STR, .description = "a file with 32 hexadecimal digits: the key of items' names and checksums"},
    {.key = {NULL}},
};

static int take_secret(struct settings *set, xlator_t *this, const char *path)
{
    char text[64] = "";
    unsigned long long high, low;
    FILE *file = fopen(path, "re");
    bool read = file && fgets(text, sizeof text, file) && strspn(text, "0123456789abcdefABCDEF") == 32 && sscanf(text, "%16llx%16llx", &high, &low) == 2;
    if (file)
        fclose(file);
    if (!read) {
        gf_log(this->name, GF_LOG_ERROR, "option secret: %s cannot be read, or is not 32 hexadecimal digits", path);
        return -1;
    }
    set->daemons.secret[0] = high;
    set->daemons.secret[1] = low;
    return 0;
}

static char *file_of(const char *folder, const char *kind, const char *brick)
{
    static const uint64_t key[2] = {0x6272, 0x69636b};
    uint64_t hash[2];
    char *path = NULL;
    siphash(key, brick, strlen(brick), hash);
    return asprintf(&path, "%s/verbena-bank-%s-%016" PRIx64, folder, kind, hash[0]) < 0 ? NULL : path;
}

int settings_take(struct settings *set, xlator_t *this, const char *brick)
{
    char *daemons = NULL, *scheme = NULL, *placement = NULL, *words = NULL, *starts = NULL, *secret = NULL;
    int32_t threads, deadline;
    size_t block_size;
    GF_OPTION_INIT("daemons", daemons, str, failed);
    GF_OPTION_INIT("scheme", scheme, str, failed);
    GF_OPTION_INIT("placement", placement, str, failed);
    GF_OPTION_INIT("block-size", block_size, size, failed);
    GF_OPTION_INIT("bank-threads", threads, int32, failed);
    GF_OPTION_INIT("deadline-ms", deadline, int32, failed);
    GF_OPTION_INIT("update-thread", set->update_thread, bool, failed);
    GF_OPTION_INIT("words", words, str, failed);
    GF_OPTION_INIT("starts", starts, str, failed);
    GF_OPTION_INIT("secret", secret, str, failed);
    set->is_strong = !strcmp(scheme, "strong");
    set->daemons.placement = !strcmp(placement, "modulo") ? PLACEMENT_MODULO : PLACEMENT_CRC32;
    set->daemons.deadline_ms = deadline;
    set->block_size = block_size;
    set->threads = threads;
    if (block_size & (block_size - 1)) {
        gf_log(this->name, GF_LOG_ERROR, "option block-size: %zu is no power of two", block_size);
        return -1;
    }
    if (!daemons || daemons_parse(&set->daemons, daemons)) {
        gf_log(this->name, GF_LOG_ERROR, "option daemons: 1 to %d of HOST:PORT or /PATH, each once, separated by commas", BANK_DAEMONS);
        return -1;
    }
    if (secret && take_secret(set, this, secret))
        return -1;
    set->words_path = file_of(words, "words", brick);
    set->starts_path = file_of(starts, "starts", brick);
    if (!set->words_path || !set->starts_path)
        return -1;
    if (!set->is_strong)
        gf_log(this->name, GF_LOG_WARNING, "scheme imca is not coherent: reads and stats may be older than writes that were acknowledged");
    return 0;
failed:
    return -1;
}

void settings_free(struct settings *set)
{
    daemons_free(&set->daemons);
    free(set->words_path);
    free(set->starts_path);
}
