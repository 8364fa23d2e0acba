/* Statements of mysqli and PDO say for which fill they are, in a comment before them (docs/howto/dependencies-from-sql.md). Both use mysqlnd. */

#include "module.h"

#include "ext/mysqlnd/mysqlnd.h"
#include "ext/mysqlnd/mysqlnd_ext_plugin.h"

#define COMMENT "/* verbena_fill='%s' */ "
#define COMMENT_BYTES (sizeof COMMENT - 1 - 2 + TAG_DIGITS)

static struct st_mysqlnd_plugin_header plugin = {
    MYSQLND_PLUGIN_API_VERSION, "verbena", 1, VERBENA_VERSION, "MIT OR Apache-2.0", "The Verbena authors", {NULL, NULL}, {NULL},
};

static func_mysqlnd_conn_data__send_query send_query;
static func_mysqlnd_stmt__prepare prepare;

/* Room for the statement with its comment, or NULL where it has no fill. */
static char *tagged(const char *statement, size_t length)
{
    char *text;
    if (!VERBENA(is_tagged))
        return NULL;
    text = safe_emalloc(1, length, COMMENT_BYTES + 1);
    sprintf(text, COMMENT, VERBENA(tag));
    memcpy(text + COMMENT_BYTES, statement, length);
    text[COMMENT_BYTES + length] = 0;
    return text;
}

static enum_func_status tagged_send_query(MYSQLND_CONN_DATA *connection, const char *statement, const size_t length, zval *read_cb,
                                          zval *error_cb)
{
    char *text = tagged(statement, length);
    enum_func_status status =
        send_query(connection, text ? text : statement, text ? length + COMMENT_BYTES : length, read_cb, error_cb);
    if (text)
        efree(text);
    return status;
}

static enum_func_status tagged_prepare(MYSQLND_STMT *const prepared, const char *const statement, const size_t length)
{
    char *text = tagged(statement, length);
    enum_func_status status = prepare(prepared, text ? text : statement, text ? length + COMMENT_BYTES : length);
    if (text)
        efree(text);
    return status;
}

void verbena_hook_statements(void)
{
    struct st_mysqlnd_conn_data_methods *connections = mysqlnd_conn_data_get_methods();
    struct st_mysqlnd_stmt_methods *prepared = mysqlnd_stmt_get_methods();
    mysqlnd_plugin_register_ex(&plugin);
    send_query = connections->send_query;
    connections->send_query = tagged_send_query;
    prepare = prepared->prepare;
    prepared->prepare = tagged_prepare;
}
