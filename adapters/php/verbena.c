/* Tags the statements of a request with the fill that they are for, and testifies that its answer is made of the database alone.
 *
 *   proxy --- GET, Verbena-Fill: TAG ---> PHP --- [comment verbena_fill='TAG'] SELECT ... ---> relay
 *         <-- Verbena-Complete: TAG ----- (all of the answer, when its end is known)
 *
 * The relay counts a tagged statement for that fill alone. The proxy stores the page with a list of rows if the testimony has its tag. A request that has
 * read anything else (APCu, a session, a file, another server) says `no` and what it was; then the page depends on everything. docs/howto/php.md.
 */

#include "module.h"

#include "ext/standard/info.h"

ZEND_DECLARE_MODULE_GLOBALS(verbena)

PHP_INI_BEGIN()
    STD_PHP_INI_ENTRY("verbena.code", "", PHP_INI_SYSTEM, OnUpdateString, code, zend_verbena_globals, verbena_globals)
PHP_INI_END()

void verbena_outside(const char *what, const char *of)
{
    if (VERBENA(is_tagged) && !VERBENA(outside)[0]) {
        char *at;
        snprintf(VERBENA(outside), sizeof VERBENA(outside), "%s%s%s", what, of ? " " : "", of ? of : "");
        /* It is part of a field. */
        for (at = VERBENA(outside); *at; at++)
            if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\')
                *at = '?';
    }
}

/* The tag of the request, if a proxy gave it one. */
static bool tag_of_request(char *tag)
{
    zval *server, *value;
    zend_is_auto_global_str(ZEND_STRL("_SERVER"));
    server = &PG(http_globals)[TRACK_VARS_SERVER];
    if (Z_TYPE_P(server) != IS_ARRAY)
        return false;
    value = zend_hash_str_find(Z_ARRVAL_P(server), ZEND_STRL("HTTP_VERBENA_FILL"));
    if (!value || Z_TYPE_P(value) != IS_STRING || Z_STRLEN_P(value) != TAG_DIGITS ||
        strspn(Z_STRVAL_P(value), "0123456789abcdef") != TAG_DIGITS)
        return false;
    memcpy(tag, Z_STRVAL_P(value), TAG_DIGITS + 1);
    return true;
}

static PHP_MINIT_FUNCTION(verbena)
{
    REGISTER_INI_ENTRIES();
    verbena_hook_statements();
    verbena_hook_answers();
    verbena_watch();
    return SUCCESS;
}

static PHP_MSHUTDOWN_FUNCTION(verbena)
{
    UNREGISTER_INI_ENTRIES();
    return SUCCESS;
}

static PHP_RINIT_FUNCTION(verbena)
{
    verbena_watch_includes();
    VERBENA(outside)[0] = 0;
    VERBENA(has_head) = false;
    VERBENA(status_line) = NULL;
    memset(&VERBENA(body), 0, sizeof VERBENA(body));
    VERBENA(is_tagged) = VERBENA(is_held) = tag_of_request(VERBENA(tag));
    /* It has begun without a call. */
    if (zend_ini_long(ZEND_STRL("session.auto_start"), 0))
        verbena_outside("session.auto_start", NULL);
    return SUCCESS;
}

static PHP_RSHUTDOWN_FUNCTION(verbena)
{
    verbena_release(true);
    VERBENA(is_tagged) = false;
    return SUCCESS;
}

static PHP_MINFO_FUNCTION(verbena)
{
    php_info_print_table_start();
    php_info_print_table_row(2, "verbena", VERBENA_VERSION);
    php_info_print_table_end();
    DISPLAY_INI_ENTRIES();
}

static PHP_GINIT_FUNCTION(verbena)
{
#if defined(COMPILE_DL_VERBENA) && defined(ZTS)
    ZEND_TSRMLS_CACHE_UPDATE();
#endif
    memset(verbena_globals, 0, sizeof *verbena_globals);
}

/* What is hooked is there before. */
static const zend_module_dep dependencies[] = {ZEND_MOD_REQUIRED("mysqlnd") ZEND_MOD_END};

zend_module_entry verbena_module_entry = {
    STANDARD_MODULE_HEADER_EX, NULL, dependencies, "verbena", NULL, PHP_MINIT(verbena), PHP_MSHUTDOWN(verbena),
    PHP_RINIT(verbena), PHP_RSHUTDOWN(verbena), PHP_MINFO(verbena), VERBENA_VERSION,
    PHP_MODULE_GLOBALS(verbena), PHP_GINIT(verbena), NULL, NULL, STANDARD_MODULE_PROPERTIES_EX,
};

#ifdef COMPILE_DL_VERBENA
#ifdef ZTS
ZEND_TSRMLS_CACHE_DEFINE()
#endif
ZEND_GET_MODULE(verbena)
#endif
