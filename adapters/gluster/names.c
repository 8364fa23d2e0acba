/* Names of items: by path for `imca`, by a keyed hash of identity and generations for `strong`. */

#include "bank.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROTATE(value, bits) ((value) << (bits) | (value) >> (64 - (bits)))

static void round_of(uint64_t v[4])
{
    v[0] += v[1]; v[1] = ROTATE(v[1], 13); v[1] ^= v[0]; v[0] = ROTATE(v[0], 32);
    v[2] += v[3]; v[3] = ROTATE(v[3], 16); v[3] ^= v[2];
    v[0] += v[3]; v[3] = ROTATE(v[3], 21); v[3] ^= v[0];
    v[2] += v[1]; v[1] = ROTATE(v[1], 17); v[1] ^= v[2]; v[2] = ROTATE(v[2], 32);
}

void siphash(const uint64_t key[2], const void *bytes, size_t length, uint64_t out[2])
{
    const unsigned char *from = bytes;
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d ^ 0xee, key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
    uint64_t word, last = (uint64_t)length << 56;
    size_t left = length;
    for (; left >= 8; left -= 8, from += 8) {
        memcpy(&word, from, 8);
        v[3] ^= word;
        round_of(v);
        round_of(v);
        v[0] ^= word;
    }
    for (size_t at = 0; at < left; at++)
        last |= (uint64_t)from[at] << 8 * at;
    v[3] ^= last;
    round_of(v);
    round_of(v);
    v[0] ^= last;
    v[2] ^= 0xee;
    for (int n = 0; n < 4; n++)
        round_of(v);
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    for (int n = 0; n < 4; n++)
        round_of(v);
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* A path that a daemon takes as part of a name. Others are not cached. */
static bool is_plain(const char *path)
{
    size_t length = path ? strlen(path) : 0;
    if (!length || path[0] != '/' || length > BANK_KEY - 24)
        return false;
    for (; *path; path++)
        if ((unsigned char)*path <= ' ' || *path == 127)
            return false;
    return true;
}

bool name_path_stat(struct item *item, const char *path)
{
    item->block = 0;
    return is_plain(path) && snprintf(item->key, sizeof item->key, "%s:stat", path) > 0;
}

bool name_path_block(struct item *item, const char *path, uint64_t block, uint64_t block_size)
{
    item->block = block;
    return is_plain(path) && snprintf(item->key, sizeof item->key, "%s:%" PRIu64, path, block * block_size) > 0;
}

static void name(struct item *item, const uint64_t secret[2], const unsigned char *gfid, const uint64_t *numbers, int count)
{
    unsigned char all[16 + 8 * 8];
    uint64_t hash[2];
    memcpy(all, gfid, 16);
    memcpy(all + 16, numbers, 8 * count);
    siphash(secret, all, 16 + 8 * count, hash);
    snprintf(item->key, sizeof item->key, "%016" PRIx64 "%016" PRIx64, hash[0], hash[1]);
}

void name_stat(struct item *item, const uint64_t secret[2], const unsigned char *gfid, const uint64_t generations[2])
{
    const uint64_t numbers[] = {WORD_ATTRIBUTES, generations[0], generations[1]};
    item->block = 0;
    name(item, secret, gfid, numbers, 3);
}

void name_block(struct item *item, const uint64_t secret[2], const unsigned char *gfid, const uint64_t generations[3], uint64_t block, uint64_t block_size)
{
    const uint64_t numbers[] = {WORD_CHUNK, generations[0], generations[1], generations[2], block, block_size};
    item->block = block;
    name(item, secret, gfid, numbers, 6);
}

#ifdef VERBENA_SWITCHES
bool without(const char *rule)
{
    const char *off = getenv("VERBENA_WITHOUT");
    return off && strstr(off, rule);
}
#endif
