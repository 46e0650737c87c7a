/* The most expensive functions. Optional: each has a twin in Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

enum {
    READ_SIZE = 4096,  /* both as in connection/exchange.py */
    RECEIVE_SIZE = 16384,
    /* Milliseconds between two checks for signals. A signal that arrives outside of a system call,
       or in another thread, does not interrupt poll(). */
    LONGEST_WAIT = 100,
};

static double
monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int
next_wait(double deadline, int longest)
{
    double left = (deadline - monotonic()) * 1000.0;
    return left <= 0 ? 0 : left < longest ? (int)left + 1 : longest;
}

/* exchange() of connection/exchange.py. In Python, a publish releases the interpreter's lock to
   send, to wait and to receive, and may have to wait for the lock after each. Here the lock is
   released once. */

/* The state of one exchange. Needs no interpreter's lock. */
typedef struct {
    int fd;
    const char *command;
    Py_ssize_t size;
    Py_ssize_t sent;
    double deadline;
    Py_ssize_t received;  /* bytes in answer, or -1 */
    int error;            /* errno of the failed call; EINTR: check for signals and continue */
    char answer[READ_SIZE];
} Exchange;

/* Continue until an answer, an error or the deadline. */
static void
advance(Exchange *x)
{
    x->received = -1;
    x->error = 0;
    for (;;) {
        if (x->sent < x->size) {
            ssize_t written = send(x->fd, x->command + x->sent, (size_t)(x->size - x->sent),
                                   MSG_DONTWAIT | MSG_NOSIGNAL);
            if (written >= 0) {
                x->sent += written;
            }
            else if (errno == EINTR) {
                x->error = EINTR;
                return;
            }
            else if (errno != EAGAIN && errno != EWOULDBLOCK) {
                /* nsqd may have sent the reason. */
                x->error = errno;
                x->received = recv(x->fd, x->answer, READ_SIZE, MSG_DONTWAIT);
                if (x->received <= 0) {
                    x->received = -1;
                }
                return;
            }
        }
        struct pollfd wanted = {x->fd, POLLIN, 0};
        if (x->sent < x->size) {
            wanted.events |= POLLOUT;
        }
        int ready = poll(&wanted, 1, next_wait(x->deadline, LONGEST_WAIT));
        if (ready < 0) {
            x->error = errno;
            return;
        }
        if (ready == 0) {
            x->error = monotonic() < x->deadline ? EINTR : 0;
            return;
        }
        if (wanted.revents != POLLOUT) {
            x->received = recv(x->fd, x->answer, READ_SIZE, MSG_DONTWAIT);
            if (x->received >= 0) {
                return;
            }
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                x->error = errno;
                return;
            }
        }
    }
}

/* Return a tuple. Steals both references. */
static PyObject *
pair_of(PyObject *first, PyObject *second)
{
    PyObject *pair = PyTuple_New(2);
    if (first == NULL || second == NULL || pair == NULL) {
        Py_XDECREF(first);
        Py_XDECREF(second);
        Py_XDECREF(pair);
        return NULL;
    }
    PyTuple_SetItem(pair, 0, first);
    PyTuple_SetItem(pair, 1, second);
    return pair;
}

static PyObject *
result_of(Py_ssize_t sent, PyObject *answer)
{
    return pair_of(PyLong_FromSsize_t(sent), answer);
}

static PyObject *
exchange(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Exchange x;
    char *command;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "usage: exchange(fd, command, start, seconds)");
        return NULL;
    }
    long fd = PyLong_AsLong(args[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[1], &command, &x.size) < 0) {
        return NULL;
    }
    x.sent = PyLong_AsSsize_t(args[2]);
    x.deadline = monotonic() + PyFloat_AsDouble(args[3]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (x.sent < 0) {
        PyErr_SetString(PyExc_ValueError, "start is negative");
        return NULL;
    }
    if (fd < 0 || fd > INT_MAX) {  /* poll() ignores a negative descriptor */
        return result_of(x.sent, PyLong_FromLong(EBADF));
    }
    x.fd = (int)fd;
    x.command = command;
    for (;;) {
        Py_BEGIN_ALLOW_THREADS
        advance(&x);
        Py_END_ALLOW_THREADS
        if (x.received >= 0) {
            return result_of(x.sent, PyBytes_FromStringAndSize(x.answer, x.received));
        }
        if (x.error == 0) {
            return result_of(x.sent, Py_NewRef(Py_None));
        }
        if (x.error != EINTR) {
            return result_of(x.sent, PyLong_FromLong(x.error));
        }
        pid_t pid = getpid();
        if (PyErr_CheckSignals() < 0) {
            return NULL;
        }
        if (getpid() != pid) {  /* a handler has forked: the connection is the parent's */
            return result_of(x.sent, PyLong_FromLong(EBADF));
        }
    }
}

/* receive() of connection/exchange.py: poll() and recv() under one release. */

static PyObject *
receive(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    char data[RECEIVE_SIZE];
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "usage: receive(fd, seconds)");
        return NULL;
    }
    long fd = PyLong_AsLong(args[0]);
    double deadline = monotonic() + PyFloat_AsDouble(args[1]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (fd < 0 || fd > INT_MAX) {
        return PyLong_FromLong(EBADF);
    }
    for (;;) {
        struct pollfd wanted = {(int)fd, POLLIN, 0};
        ssize_t size = -1;
        int ready, error;
        Py_BEGIN_ALLOW_THREADS
        ready = poll(&wanted, 1, next_wait(deadline, INT_MAX));
        if (ready > 0) {
            size = recv((int)fd, data, RECEIVE_SIZE, MSG_DONTWAIT);
        }
        error = errno;
        Py_END_ALLOW_THREADS
        if (size >= 0) {
            return PyBytes_FromStringAndSize(data, size);
        }
        if (ready == 0) {
            if (monotonic() >= deadline) {
                return Py_NewRef(Py_None);
            }
        }
        else if (error == EINTR) {
            if (PyErr_CheckSignals() < 0) {
                return NULL;
            }
        }
        else if (error != EAGAIN && error != EWOULDBLOCK) {
            return PyLong_FromLong(error);
        }
    }
}

/* pack_bodies() of protocol/commands.py. */

static void
put_size(char **target, Py_ssize_t size)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        *(*target)++ = (char)(size >> shift & 0xff);
    }
}

static PyObject *
pack_bodies(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    char *data, *target;
    Py_ssize_t before, size, total;
    PyObject *bodies, *result = NULL;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "usage: pack_bodies(bodies, before)");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(args[1], &data, &before) < 0) {
        return NULL;
    }
    /* A tuple: another thread may change the list. */
    bodies = PySequence_Tuple(args[0]);
    if (bodies == NULL) {
        return NULL;
    }
    Py_ssize_t number = PyTuple_Size(bodies);
    total = before + 4;
    for (Py_ssize_t i = 0; i < number; i++) {
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(bodies, i), &data, &size) < 0) {
            goto done;
        }
        if (size > INT32_MAX || total > PY_SSIZE_T_MAX - 4 - size) {
            PyErr_SetString(PyExc_OverflowError, "a body has more than 2 GiB");
            goto done;
        }
        total += 4 + size;
    }
    result = PyBytes_FromStringAndSize(NULL, total);
    if (result == NULL) {
        goto done;
    }
    target = PyBytes_AsString(result);
    memcpy(target, PyBytes_AsString(args[1]), (size_t)before);
    target += before;
    put_size(&target, number);
    for (Py_ssize_t i = 0; i < number; i++) {
        PyObject *body = PyTuple_GetItem(bodies, i);
        size = PyBytes_Size(body);
        put_size(&target, size);
        memcpy(target, PyBytes_AsString(body), (size_t)size);
        target += size;
    }
done:
    Py_DECREF(bodies);
    return result;
}

/* parse_messages() of protocol/frames.py. */

enum {
    MESSAGE_TYPE = 2,
    ID_SIZE = 16,
    HEAD_SIZE = 4 + 4 + 8 + 2 + ID_SIZE,  /* size, type, timestamp, attempts, id */
};

static uint64_t
get_number(const char *data, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++) {
        value = value << 8 | (unsigned char)data[i];
    }
    return value;
}

/* Return (timestamp, attempts, id, body). */
static PyObject *
message_of(const char *frame, Py_ssize_t size)
{
    PyObject *message = PyTuple_New(4);
    PyObject *fields[4] = {
        PyLong_FromLongLong((long long)get_number(frame + 8, 8)),
        PyLong_FromLong((long)get_number(frame + 16, 2)),
        PyBytes_FromStringAndSize(frame + 18, ID_SIZE),
        PyBytes_FromStringAndSize(frame + HEAD_SIZE, size - HEAD_SIZE),
    };
    int failed = message == NULL;
    for (int i = 0; i < 4; i++) {
        failed |= fields[i] == NULL;
    }
    for (int i = 0; i < 4; i++) {
        if (failed) {
            Py_XDECREF(fields[i]);
        }
        else {
            PyTuple_SetItem(message, i, fields[i]);
        }
    }
    if (failed) {
        Py_XDECREF(message);
        return NULL;
    }
    return message;
}

static PyObject *
parse_messages(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    char *data;
    Py_ssize_t end;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "usage: parse_messages(data, start, max_frame_size)");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(args[0], &data, &end) < 0) {
        return NULL;
    }
    Py_ssize_t pos = PyLong_AsSsize_t(args[1]);
    Py_ssize_t longest = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (pos < 0) {
        PyErr_SetString(PyExc_ValueError, "start is negative");
        return NULL;
    }
    PyObject *messages = PyList_New(0);
    if (messages == NULL) {
        return NULL;
    }
    while (end - pos >= HEAD_SIZE) {
        const char *frame = data + pos;
        Py_ssize_t size = (int32_t)get_number(frame, 4);
        if (size < HEAD_SIZE - 4 || size > longest || size > end - pos - 4
            || get_number(frame + 4, 4) != MESSAGE_TYPE) {
            break;
        }
        PyObject *message = message_of(frame, 4 + size);
        if (message == NULL || PyList_Append(messages, message) < 0) {
            Py_XDECREF(message);
            Py_DECREF(messages);
            return NULL;
        }
        Py_DECREF(message);
        pos += 4 + size;
    }
    return pair_of(messages, PyLong_FromSsize_t(pos));
}

static PyMethodDef methods[] = {
    {"pack_bodies", (PyCFunction)(void (*)(void))pack_bodies, METH_FASTCALL, NULL},
    {"parse_messages", (PyCFunction)(void (*)(void))parse_messages, METH_FASTCALL, NULL},
    {"receive", (PyCFunction)(void (*)(void))receive, METH_FASTCALL, NULL},
    {"exchange", (PyCFunction)(void (*)(void))exchange, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_MOD_PER_INTERPRETER_GIL_SUPPORTED  /* 3.15 hides it from older limited APIs. */
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_MOD_GIL_NOT_USED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "nsqclient._native",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
