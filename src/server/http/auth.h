// auth.h - authorization, decided from the headers alone, before anything is read or allocated for the
// request.
//
// A web page can make the browser send requests to this machine (DNS rebinding, cross-site request forgery).
// So on a loopback address the Host must name loopback, and an Origin must be the server's own or an allowed
// one. Not here: users, roles, rates.
#pragma once
#include <stdbool.h>
#include "base/str.h"

// Compares in a time that depends only on the length of the given text.
bool auth_same_key(struct str given, const char *key);
// The key in "Bearer KEY", in "Basic BASE64(user:KEY)" (a browser's login dialog), or in x-api-key; empty:
// none. `room` receives a decoded key.
struct str auth_key_of(const char *authorization, const char *x_api_key, char *room, size_t n_room);

// "localhost", "127.0.0.1" or "[::1]", with or without a port of digits.
bool auth_host_is_loopback(struct str host);
bool auth_address_is_loopback(const char *address);
// Whether an Origin such as "http://localhost:8080" names the same place as the Host.
bool auth_origin_is_host(struct str origin, struct str host);
// Only digits, at least one, and below 2^63.
bool auth_length_is_plain(struct str content_length);
