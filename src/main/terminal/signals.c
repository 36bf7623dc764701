// signals.c - see signals.h. Handlers make system calls alone.
#include "main/terminal/signals.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "main/settings.h"
#include "main/terminal/terminal.h"

static volatile sig_atomic_t n_interrupts, held;
static char bus_message[512] = "ingot: a mapped file was cut short while it was in use\n";

static void set_handler(int signal, void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler };
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

static void on_interrupt(int signal)
{
    (void)signal;
    if (++n_interrupts < 2 || held)
        return;
    (void)!write(STDERR_FILENO, "\n", 1);
    terminal_restore();
    _exit(STATUS_INTERRUPTED);
}

// Asked to leave, or the terminal is gone.
static void on_end(int signal)
{
    (void)signal;
    terminal_restore();
    _exit(STATUS_INTERRUPTED);
}

// nohup has it ignored.
static void leave_on(int signal)
{
    struct sigaction inherited;

    if (sigaction(signal, NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN)
        set_handler(signal, on_end);
}

// A page of a mapped file is gone. The program cannot go on; the message says why.
static void on_bus_error(int signal)
{
    (void)signal;
    (void)!write(STDERR_FILENO, bus_message, strlen(bus_message));
    terminal_restore();
    _exit(STATUS_ERROR);
}

void signals_install(void)
{
    set_handler(SIGINT, on_interrupt);
    leave_on(SIGTERM);
    leave_on(SIGHUP);
    set_handler(SIGPIPE, SIG_IGN);
    set_handler(SIGXFSZ, SIG_IGN); // a file at its limit is an error of write()
    set_handler(SIGBUS, on_bus_error);
}

void signals_name_file(const char *path)
{
    snprintf(bus_message, sizeof bus_message,
             "ingot: %.400s was cut short while it was in use; is it being written?\n",
             path ? path : "a mapped file");
}

unsigned signals_interrupts(void)
{
    return (unsigned)n_interrupts;
}

bool signals_none(void)
{
    return n_interrupts == 0;
}

bool signals_go_on(void *arg)
{
    (void)arg;
    return signals_none();
}

void signals_clear_interrupts(void)
{
    n_interrupts = 0;
}

void signals_hold_interrupts(bool hold)
{
    held = hold;
}

void signals_end_work(void)
{
    signals_hold_interrupts(true);
    set_handler(SIGTERM, on_interrupt);
}
