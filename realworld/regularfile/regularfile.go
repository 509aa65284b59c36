// Package regularfile reads files whose content is small and whose kind is not known: what an
// administrator named in a flag or a field, or placed in a folder of the agent.
//
// The contract: a read never waits and never fills the memory. A pipe has no writer for as long as
// it likes, /dev/zero never ends, and a file may be replaced by either while the agent runs.
package regularfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrNotRegular is the error of reading a pipe, a device, a directory or a socket.
var ErrNotRegular = errors.New("is not a regular file")

// ErrTooLarge is the error of reading a file that is larger than the caller's bound.
var ErrTooLarge = errors.New("is larger than")

// Read returns the content of a regular file of at most bytesMax bytes. A link to one is read too.
// Its errors name the file.
func Read(path string, bytesMax int64) ([]byte, error) {
	// O_NONBLOCK: opening a pipe must not wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) { // a socket
		return nil, fmt.Errorf("%s %w", path, ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s %w", path, ErrNotRegular)
	}
	data, err := io.ReadAll(io.LimitReader(f, bytesMax+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) > bytesMax:
		return nil, fmt.Errorf("%s %w %d bytes", path, ErrTooLarge, bytesMax)
	}
	return data, nil
}
