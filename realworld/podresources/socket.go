package podresources

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Every client that can connect to the socket can list the pods: root and its group can.
const (
	dirPermission    = 0o750
	socketPermission = 0o660
)

// pathMax is the longest path of a socket in bytes (unix(7)).
const pathMax = len(syscall.RawSockaddrUnix{}.Path) - 1

// dialTimeout bounds the check whether another process still serves the socket.
const dialTimeout = time.Second

// listen creates a socket. It removes a stale socket of an earlier process. It fails if a process
// still serves the socket, or if the path is anything else than a socket.
func listen(path string) (net.Listener, error) {
	if len(path) > pathMax {
		return nil, fmt.Errorf("%s: a socket's path has %d bytes at most", path, pathMax)
	}
	if err := os.MkdirAll(filepath.Dir(path), dirPermission); err != nil {
		return nil, fmt.Errorf("making the directory of a socket: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketPermission); err != nil {
		return nil, errors.Join(fmt.Errorf("protecting a socket: %w", err), listener.Close())
	}
	return listener, nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking for a socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s: there is something that is no socket", path)
	}
	if conn, err := net.DialTimeout("unix", path, dialTimeout); err == nil {
		return errors.Join(fmt.Errorf("%s: somebody serves it already", path), conn.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the socket of a former life: %w", err)
	}
	return nil
}
