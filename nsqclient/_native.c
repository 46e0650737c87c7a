/* exchange() of connection/exchange.py, compiled. Optional: each function has a twin in Python.

   A publish in Python gives the interpreter's lock away once to send and once to receive, and each
   time the thread may have to wait for it. Here both happen under one release. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

enum {
    READ_SIZE = 4096,  /* as in connection/exchange.py */
    /* Milliseconds between two looks for signals: one that arrives outside of a system call, or in
       another thread, does not interrupt poll(). */
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
next_wait(double deadline)
{
    double left = (deadline - monotonic()) * 1000.0;
    return left <= 0 ? 0 : left < LONGEST_WAIT ? (int)left + 1 : LONGEST_WAIT;
}

/* One exchange; written and read without the interpreter's lock. */
typedef struct {
    int fd;
    const char *command;
    Py_ssize_t size;
    Py_ssize_t sent;
    double deadline;
    Py_ssize_t received;  /* bytes in answer, or -1 */
    int error;            /* errno of the call that failed; EINTR: look for signals, go on */
    char answer[READ_SIZE];
} Exchange;

/* Go on until there is an answer, an error, or neither: the time is over. */
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
                /* nsqd may have sent the reason before. */
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
        int ready = poll(&wanted, 1, next_wait(x->deadline));
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

/* Return (sent, answer); takes the reference to answer. */
static PyObject *
result_of(Py_ssize_t sent, PyObject *answer)
{
    PyObject *result = PyTuple_New(2);
    PyObject *number = PyLong_FromSsize_t(sent);
    if (answer == NULL || result == NULL || number == NULL) {
        Py_XDECREF(answer);
        Py_XDECREF(result);
        Py_XDECREF(number);
        return NULL;
    }
    PyTuple_SetItem(result, 0, number);
    PyTuple_SetItem(result, 1, answer);
    return result;
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

static PyMethodDef methods[] = {
    {"exchange", (PyCFunction)(void (*)(void))exchange, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
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
