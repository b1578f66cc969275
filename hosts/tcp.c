// SPDX-License-Identifier: Apache-2.0 OR MIT
// A TCP transfer between two hosts, of which each runs one end:
//   midwire-tcp listen FAMILY PORT …     midwire-tcp connect ADDRESS PORT …
// with … = SOURCE_PORT CONNECTIONS BYTES DIRECTION CONGESTION_CONTROL NO_DELAY WRITE_SIZE SEED.
// All connections are opened, in order, before a byte is sent. Every byte that arrives is compared
// with what was sent. Each direction of a connection is a process of its own; its end says a line.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 1024, READ_SIZE = 1 << 16 };

static long connections, no_delay, write_size;
static uint64_t bytes, seed;
static const char *congestion_control;

static _Noreturn void fail(const char *what)
{
	perror(what);
	exit(1);
}

// The byte of a stream at an offset: any wrong one, or a right one elsewhere, is seen.
static uint8_t payload(uint64_t stream, uint64_t offset)
{
	uint64_t x = (offset / 8 + 1) * 0x9e3779b97f4a7c15 ^ (seed + 1) * 0xd1342543de82ef95 ^ stream << 32;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (uint8_t)((x ^ x >> 31) >> offset % 8 * 8);
}

static void set_up(int fd)
{
	int on = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on))
		fail("SO_REUSEADDR");
	if (no_delay && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
		fail("TCP_NODELAY");
	if (*congestion_control && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion_control,
					      strlen(congestion_control)))
		fail(congestion_control);
}

static void send_all(int fd, uint64_t stream)
{
	uint8_t *buffer = malloc(write_size);

	for (uint64_t sent = 0; sent < bytes;) {
		long n = bytes - sent < (uint64_t)write_size ? (long)(bytes - sent) : write_size;
		for (long i = 0; i < n; i++)
			buffer[i] = payload(stream, sent + i);
		for (long done = 0, now; done < n; done += now)
			if ((now = write(fd, buffer + done, n - done)) < 0)
				fail("write");
		sent += n;
	}
	if (shutdown(fd, SHUT_WR))
		fail("shutdown");
}

static void receive_all(int fd, uint64_t stream, long connection)
{
	static uint8_t buffer[READ_SIZE];
	struct timespec from, to;
	uint64_t got = 0;
	ssize_t n;

	clock_gettime(CLOCK_MONOTONIC, &from);
	while ((n = read(fd, buffer, sizeof buffer)) > 0)
		for (ssize_t i = 0; i < n; i++, got++)
			if (got >= bytes || buffer[i] != payload(stream, got)) {
				printf("connection %ld: byte %llu is wrong\n", connection, (unsigned long long)got);
				exit(1);
			}
	if (n < 0)
		fail("read");
	clock_gettime(CLOCK_MONOTONIC, &to);
	double seconds = (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9;
	printf("connection %ld: %llu bytes in %.9f s\n", connection, (unsigned long long)got, seconds);
	if (got != bytes)
		exit(1);
}

// Starts a process for one direction of a connection.
static void start(int sends, int fd, long connection, int from_opener)
{
	uint64_t stream = 2 * (uint64_t)connection + from_opener;

	switch (fork()) {
	case -1:
		fail("fork");
	case 0:
		if (sends)
			send_all(fd, stream);
		else
			receive_all(fd, stream, connection);
		exit(0);
	}
}

int main(int argc, char **argv)
{
	if (argc != 12) {
		fputs("midwire-tcp: see hosts/tcp.c\n", stderr);
		return 2;
	}
	int opens = !strcmp(argv[1], "connect"), fds[MAX_CONNECTIONS], listener = -1;
	long source_port = atol(argv[4]);
	connections = atol(argv[5]);
	bytes = strtoull(argv[6], NULL, 10);
	const char *direction = argv[7];
	congestion_control = argv[8];
	no_delay = atol(argv[9]);
	write_size = atol(argv[10]);
	seed = strtoull(argv[11], NULL, 10);

	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
				 .ai_socktype = SOCK_STREAM}, *address;
	if (getaddrinfo(argv[2], argv[3], &hints, &address) || connections > MAX_CONNECTIONS) {
		fputs("midwire-tcp: no such address\n", stderr);
		return 2;
	}
	if (!opens) {
		listener = socket(address->ai_family, SOCK_STREAM, 0);
		set_up(listener);
		if (bind(listener, address->ai_addr, address->ai_addrlen) || listen(listener, MAX_CONNECTIONS))
			fail("listen");
	}
	for (long i = 0; i < connections; i++) {
		if (!opens) {
			if ((fds[i] = accept(listener, NULL, NULL)) < 0)
				fail("accept");
			continue;
		}
		fds[i] = socket(address->ai_family, SOCK_STREAM, 0);
		set_up(fds[i]);
		// Both families have their port at the same place.
		struct sockaddr_in6 own = {.sin6_family = address->ai_family, .sin6_port = htons(source_port + i)};
		if (source_port && bind(fds[i], (struct sockaddr *)&own, address->ai_addrlen))
			fail("bind");
		if (connect(fds[i], address->ai_addr, address->ai_addrlen))
			fail("connect");
	}
	for (long i = 0; i < connections; i++) {
		if (strcmp(direction, "receive"))
			start(opens, fds[i], i, 1);
		if (strcmp(direction, "send"))
			start(!opens, fds[i], i, 0);
		close(fds[i]);
	}
	int status, worst = 0;
	while (wait(&status) > 0)
		worst |= status;
	return worst != 0;
}
