PHP_ARG_ENABLE([verbena], [whether to enable verbena], [AS_HELP_STRING([--enable-verbena], [Tag statements and testify for pages])])
if test "$PHP_VERBENA" != "no"; then
  PHP_NEW_EXTENSION(verbena, verbena.c answers.c outside.c statements.c, $ext_shared)
  PHP_ADD_EXTENSION_DEP(verbena, mysqlnd)
fi
