vcl 4.1;
# The built-in rules: they keep what the application lets be kept.
backend application {
    .host = "127.0.0.1";
    .port = "@PORT@";
}
