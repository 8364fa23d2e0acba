/* What a request reads beside the database.
 *
 * A function of an extension that is not known here counts as a read of something else. Of those that are known the lists say which read what: another
 * process, another machine, or files. Files under verbena.code are the program. PHP shows each function to its observers once, when it is first
 * called, so that those that read nothing cost nothing.
 */

#include "module.h"

#include "ext/standard/file.h"
#include "main/php_streams.h"

/* Extensions whose functions read nothing but their arguments, the database, and what the lists below have. */
static const char MODULES[] =
    " apache2handler bcmath calendar cgi-fcgi cli cli_server core ctype date dom filter gd gmp hash iconv intl json libxml mbstring mysqli mysqlnd"
    " openssl pcre pdo pdo_mysql random reflection session simplexml sodium spl standard tokenizer verbena xml xmlreader xmlwriter xsl zlib ";
/* Read another process, another machine, or the state of this one; or files in a way that is not looked at. */
static const char OUTSIDE[] =
    " checkdnsrr disk_free_space disk_total_space diskfreespace dl dns_check_record dns_get_mx dns_get_record exec fsockopen getmxrr gethostbyaddr"
    " gethostbyname gethostbynamel hash_file hash_hmac_file hash_update_file imagefttext imageftbbox imagettftext imagettfbbox imageloadfont"
    " net_get_interfaces passthru pfsockopen popen proc_open resourcebundle::__construct resourcebundle::create resourcebundle_create session_decode session_gc session_regenerate_id session_reset session_start shell_exec"
    " stream_socket_accept stream_socket_client stream_socket_recvfrom stream_socket_server sys_getloadavg system ";
/* Open what their first argument names: a plain file is looked at when it is opened. */
static const char OPEN[] =
    " copy domdocument::load domdocument::loadhtmlfile domdocument::schemavalidate domdocument::relaxngvalidate file file_get_contents fopen"
    " get_headers get_meta_tags getimagesize gzfile gzopen highlight_file imagecreatefromavif imagecreatefrombmp imagecreatefromgd imagecreatefromgd2"
    " imagecreatefromgif imagecreatefromjpeg imagecreatefrompng imagecreatefromtga imagecreatefromwbmp imagecreatefromwebp imagecreatefromxbm"
    " imagecreatefromxpm md5_file parse_ini_file php_strip_whitespace readfile readgzfile sha1_file show_source simplexml_load_file"
    " splfileobject::__construct xmlreader::open ";
/* Look at the entry of a directory that their first argument names, or at a directory. */
static const char LOOK[] =
    " dir directoryiterator::__construct file_exists fileatime filectime filegroup fileinode filemtime fileowner fileperms filesize filesystemiterator::__construct"
    " filetype glob globiterator::__construct is_dir is_executable is_file is_link is_readable is_writable is_writeable linkinfo lstat opendir"
    " readlink realpath recursivedirectoryiterator::__construct scandir splfileinfo::__construct stat ";

static bool has(const char *list, const char *name)
{
    char word[96];
    int length = snprintf(word, sizeof word, " %s ", name);
    if (length < 0 || (size_t)length >= sizeof word)
        return false;
    zend_str_tolower(word, length);
    return strstr(list, word) != NULL;
}

/* The name of what is called, with its class. */
static const char *called(zend_execute_data *data, char *name, size_t size)
{
    zend_function *function = data->func;
    const char *own = function->common.function_name ? ZSTR_VAL(function->common.function_name) : "";
    if (function->common.scope)
        snprintf(name, size, "%s::%s", ZSTR_VAL(function->common.scope->name), own);
    else
        snprintf(name, size, "%s", own);
    return name;
}

/* Whether a file belongs to the program. */
static bool is_code(const char *path)
{
    char whole[MAXPATHLEN];
    const char *from = VERBENA(code);
    if (!from || !*from || !expand_filepath(path, whole))
        return false;
    while (*from) {
        size_t length = strcspn(from, ":"), shown = length;
        while (shown > 1 && from[shown - 1] == '/')
            shown--;
        if (shown && !strncmp(whole, from, shown) && (!whole[shown] || whole[shown] == '/' || shown == 1))
            return true;
        from += length + (from[length] == ':');
    }
    return false;
}

static const char *first_text(zend_execute_data *data)
{
    zval *first = ZEND_CALL_NUM_ARGS(data) ? ZEND_CALL_ARG(data, 1) : NULL;
    if (first)
        ZVAL_DEREF(first);
    return first && Z_TYPE_P(first) == IS_STRING ? Z_STRVAL_P(first) : NULL;
}

static void calls_outside(zend_execute_data *data)
{
    char name[96];
    if (VERBENA(is_tagged))
        verbena_outside(called(data, name, sizeof name), NULL);
}

/* Streams of PHP's own that have nothing but what the program put there. */
static bool is_own_stream(const char *path)
{
    static const char *const own[] = {"php://memory", "php://temp", "php://input", "php://output", "php://stdout", "php://stderr", "php://stdin"};
    size_t nth;
    for (nth = 0; nth < sizeof own / sizeof *own; nth++)
        if (!strncasecmp(path, own[nth], strlen(own[nth])))
            return true;
    return !strncasecmp(path, "data:", 5);
}

static void opens(zend_execute_data *data)
{
    char name[96];
    const char *path;
    if (!VERBENA(is_tagged))
        return;
    path = first_text(data);
    /* No text: it is an object, whose text is made later. */
    if (!path || (strstr(path, "://") && !is_own_stream(path)))
        verbena_outside(called(data, name, sizeof name), path);
}

static void looks(zend_execute_data *data)
{
    char name[96];
    const char *path;
    if (!VERBENA(is_tagged))
        return;
    path = first_text(data);
    if (!path || strstr(path, "://") || !is_code(path))
        verbena_outside(called(data, name, sizeof name), path);
}

/* Another kind of database is not behind the relay. */
static void connects(zend_execute_data *data)
{
    const char *source = first_text(data);
    if (VERBENA(is_tagged) && (!source || strncasecmp(source, "mysql:", 6)))
        verbena_outside("PDO", source ? "of another kind" : NULL);
}

static zend_observer_fcall_handlers watched(zend_execute_data *data)
{
    zend_observer_fcall_handlers handlers = {NULL, NULL};
    zend_function *function = data->func;
    char name[96];
    if (function->type != ZEND_INTERNAL_FUNCTION || !function->internal_function.module)
        return handlers;
    called(data, name, sizeof name);
    if (!has(MODULES, function->internal_function.module->name) || has(OUTSIDE, name))
        handlers.begin = calls_outside;
    else if (has(OPEN, name))
        handlers.begin = opens;
    else if (has(LOOK, name))
        handlers.begin = looks;
    else if (!strcasecmp(name, "PDO::__construct"))
        handlers.begin = connects;
    return handlers;
}

/* ---- Plain files, by whatever function they are opened. ---- */

static const php_stream_wrapper_ops *plain;
static php_stream_wrapper_ops plain_watched;

static php_stream *open_plain(php_stream_wrapper *wrapper, const char *path, const char *mode, int options, zend_string **opened,
                              php_stream_context *context STREAMS_DC)
{
    /* One that is written into alone shows nothing. */
    bool reads = strchr(mode, 'r') || strchr(mode, '+');
    if (VERBENA(is_tagged) && reads && !is_code(path))
        verbena_outside("file", path);
    return plain->stream_opener(wrapper, path, mode, options, opened, context STREAMS_REL_CC);
}

/* ---- What is included: also from opcache, which opens nothing. ---- */

static zend_op_array *(*compile)(zend_file_handle *file, int type);

static zend_op_array *compile_watched(zend_file_handle *file, int type)
{
    zend_string *path = file->opened_path ? file->opened_path : file->filename;
    if (VERBENA(is_tagged) && (!path || !is_code(ZSTR_VAL(path))))
        verbena_outside("include", path ? ZSTR_VAL(path) : NULL);
    return compile(file, type);
}

void verbena_watch_includes(void)
{
    /* In a request, because opcache takes its place when all extensions have begun. */
    if (zend_compile_file != compile_watched) {
        compile = zend_compile_file;
        zend_compile_file = compile_watched;
    }
}

void verbena_watch(void)
{
    zend_observer_fcall_register(watched);
    plain = php_plain_files_wrapper.wops;
    plain_watched = *plain;
    plain_watched.stream_opener = open_plain;
    php_plain_files_wrapper.wops = &plain_watched;
}
