"""The program that starts programs, and stays with each until its end. It imports nothing else of borgish.

The code of these modules is fed to a bare interpreter, the *zygote*, which waits on a socket and forks
once for each request. The fork is a *shim*: it starts one program, writes its output to rotated files,
waits for it, kills what it left behind, writes how it ended, and carries the next run that it is asked for,
or ends itself. It depends on neither the zygote nor whoever asked, so programs and their exit codes survive
both. Nothing here needs, at the end, memory or disk that could be missing then: room for the last records is
made at the start.

There is no supervisor that all programs share: whatever is killed, borglet, zygote or another shim, a run
goes on. If its own shim is killed the program goes on too, since it holds its output FIFO open for reading
as well, and a shim that only watches takes over; how it exits is then *unknown*, and reported so. A program
with a lease (``lease``) is killed with its shim instead: nobody else would end it in time.

A request is a message with file descriptors: a file with the request as JSON, the pipe for the answer (of a
run: the connection over which its end is told, too, and further runs are asked for), and for ``exec`` the
pipe for the output, and that of the input if it has any. Names of files are relative to the attempt's folder.
"""

# Each imports only what is before it.
MODULES = ("basics", "kernel", "view", "inside", "groups", "output", "program", "lease", "runs", "main")
