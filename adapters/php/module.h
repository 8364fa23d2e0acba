/* What the parts of the extension share: verbena.c (requests), answers.c (what the server gets), outside.c (what is watched), statements.c (tags). */

#ifndef VERBENA_PHP_H
#define VERBENA_PHP_H

#include "php.h"

#include "SAPI.h"
#include "Zend/zend_observer.h"
#include "php_ini.h"
#include "zend_smart_str.h"

#include <stdbool.h>

#define VERBENA_VERSION "0.1.0"
/* Hexadecimal digits of the tag of a fill. */
#define TAG_DIGITS 16
/* Bytes of an answer that wait for its end. A longer one is not testified for. */
#define HELD (8 * 1024 * 1024)

ZEND_BEGIN_MODULE_GLOBALS(verbena)
    /* Directories whose files change by a deploy alone, with colons between. */
    char *code;
    /* A proxy wants to store the answer, and this is the fill's tag. */
    bool is_tagged;
    char tag[TAG_DIGITS + 1];
    /* The answer waits for its end. */
    bool is_held;
    /* Its head was sent, for PHP. */
    bool has_head;
    char *status_line;
    smart_str body;
    /* What was read beside the database, if anything was. */
    char outside[128];
ZEND_END_MODULE_GLOBALS(verbena)

ZEND_EXTERN_MODULE_GLOBALS(verbena)
#define VERBENA(field) ZEND_MODULE_GLOBALS_ACCESSOR(verbena, field)

/* The request is made of more than the database: `what`, and `of` that, if it is not NULL. */
void verbena_outside(const char *what, const char *of);

/* answers.c */
void verbena_hook_answers(void);
/* Gives the server what was held, with the testimony if the answer is `whole`. */
void verbena_release(bool whole);

/* outside.c */
void verbena_watch(void);
void verbena_watch_includes(void);

/* statements.c */
void verbena_hook_statements(void);

#endif
