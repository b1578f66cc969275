// SPDX-License-Identifier: Apache-2.0 OR MIT
// One end of a TCP connection, whose calls are made when standard input says:
//   midwire-calls listen ADDRESS PORT     midwire-calls connect ADDRESS PORT SOURCE_PORT
// A line a call: TIME CALL [BYTES [TIMES]]. TIME is in nanoseconds since the kernel came up; 0 is as
// soon as the call before has returned. A call that is made several times is made so without a wait.
//   connect    must be the first call of the end that opens the connection
//   no-delay   small segments go at once from here on
//   write      hands over bytes; waits as long as the socket has no room for them
//   read       takes so many bytes, or without a number all to the end of the stream
//   shutdown   no more is written
//   reset      gives the connection up
//   stay       does nothing, and then the connection is left as it is, whoever still reads
// Calls of read are made beside all others, each kind in its order.
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 16 };

struct call {
	unsigned long long at, bytes, times;
	char name[16];
};

static struct call *calls;
static size_t count;

static _Noreturn void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void read_script(void)
{
	char line[128];

	while (fgets(line, sizeof line, stdin)) {
		calls = realloc(calls, (count + 1) * sizeof *calls);
		struct call *call = &calls[count++];
		call->bytes = 0;
		call->times = 1;
		if (sscanf(line, "%llu %15s %llu %llu", &call->at, call->name, &call->bytes, &call->times) < 2) {
			fprintf(stderr, "midwire-calls: %s", line);
			exit(2);
		}
	}
}

static void wait_until(unsigned long long at)
{
	struct timespec time = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};

	while (at && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
		;
}

static int is(const struct call *call, const char *name)
{
	return !strcmp(call->name, name);
}

static void set(int fd, int level, int option, const void *value, socklen_t length)
{
	if (setsockopt(fd, level, option, value, length))
		fail("setsockopt");
}

static int open_end(int argc, char **argv)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *address;
	int opens = !strcmp(argv[1], "connect"), on = 1;

	if (getaddrinfo(argv[2], argv[3], &hints, &address))
		fail("address");
	int fd = socket(address->ai_family, SOCK_STREAM, 0);
	set(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (!opens) {
		if (bind(fd, address->ai_addr, address->ai_addrlen) || listen(fd, 1))
			fail("listen");
		int connection = accept(fd, NULL, NULL);
		if (connection < 0)
			fail("accept");
		close(fd);
		return connection;
	}
	// Both families have their port at the same place.
	struct sockaddr_in6 own = {.sin6_family = address->ai_family};
	own.sin6_port = htons(argc > 4 ? atoi(argv[4]) : 0);
	if (bind(fd, (struct sockaddr *)&own, address->ai_addrlen))
		fail("bind");
	if (count && is(calls, "connect"))
		wait_until(calls->at);
	if (connect(fd, address->ai_addr, address->ai_addrlen))
		fail("connect");
	return fd;
}

// False when nothing can be written any more.
static int write_bytes(int fd, unsigned long long bytes)
{
	static char *buffer;
	static unsigned long long room;

	if (bytes > room && !(buffer = realloc(buffer, room = bytes)))
		fail("memory");
	memset(buffer, 0, bytes);
	for (ssize_t now; bytes; bytes -= now)
		if ((now = write(fd, buffer, bytes)) < 0)
			return 0;
	return 1;
}

static void read_bytes(int fd, unsigned long long bytes)
{
	static char buffer[CHUNK];
	ssize_t now;

	for (unsigned long long left = bytes; left || !bytes; left -= bytes ? now : 0)
		if ((now = read(fd, buffer, bytes && left < CHUNK ? left : CHUNK)) <= 0)
			return;
}

// Waits for the number of the connection, which is there already when it is opened: to make a thread
// takes time.
static void *reader(void *pipe)
{
	int fd;

	if (read(*(int *)pipe, &fd, sizeof fd) != sizeof fd)
		return NULL;
	for (struct call *call = calls; call < calls + count; call++) {
		if (!is(call, "read"))
			continue;
		wait_until(call->at);
		for (unsigned long long i = 0; i < call->times; i++)
			read_bytes(fd, call->bytes);
	}
	return NULL;
}

static void wake(int pipe, int fd)
{
	if (write(pipe, &fd, sizeof fd) != sizeof fd)
		fail("pipe");
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fputs("midwire-calls: see hosts/calls.c\n", stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	read_script();
	int ends[2], on = 1, writes = 1;
	pthread_t thread;
	if (pipe(ends) || pthread_create(&thread, NULL, reader, ends))
		fail("thread");
	int fd = open_end(argc, argv), woken = 0;
	for (struct call *call = calls; call < calls + count; call++) {
		if (is(call, "read") || is(call, "connect"))
			continue;
		// What is to be called at once is called before the reader is woken, for that takes time too.
		if (call->at && !woken++)
			wake(ends[1], fd);
		wait_until(call->at);
		for (unsigned long long i = 0; i < call->times && writes && is(call, "write"); i++)
			writes = write_bytes(fd, call->bytes);
		if (!woken++)
			wake(ends[1], fd);
		if (is(call, "no-delay"))
			set(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		if (is(call, "shutdown"))
			shutdown(fd, SHUT_WR);
		// Whoever still reads would hold a socket that is closed.
		struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
		if (is(call, "reset") && connect(fd, &nowhere, sizeof nowhere))
			fail("reset");
		if (is(call, "stay") || is(call, "reset"))
			return 0;
	}
	if (!woken)
		wake(ends[1], fd);
	pthread_join(thread, NULL);
	return 0;
}
