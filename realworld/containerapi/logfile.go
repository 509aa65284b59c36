package containerapi

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Between the two steps of a rotation a log has no file. A missing file is retried for a while.
	logAppearMax  = time.Second
	logAppearPoll = 50 * time.Millisecond
	// openTriesMax bounds the attempts in a tree with continuous renames.
	openTriesMax = 8
)

// logPath is the path of a container's log, below the directory of all logs.
type logPath struct{ root, relative string }

func newLogPath(root, path string) (logPath, error) {
	relative, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(relative) || relative == "." {
		return logPath{}, httpErrorf(500, "log file %q is not below podLogsDir %q", path, root)
	}
	return logPath{root, relative}, nil
}

func (p logPath) String() string { return filepath.Join(p.root, p.relative) }

// open opens the log, which must be a regular file, through no link below the root. The root itself
// may be a link, because an administrator creates it.
func (p logPath) open() (*os.File, error) {
	root, err := os.OpenFile(p.root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC, // opening a pipe must not block
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	for range openTriesMax {
		var fd int
		fd, err = unix.Openat2(int(root.Fd()), p.relative, how)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue // a concurrent rename
		}
		if err == nil {
			return checkRegular(os.NewFile(uintptr(fd), p.String()))
		}
		break
	}
	return nil, &os.PathError{Op: "open", Path: p.String(), Err: err}
}

func checkRegular(f *os.File) (*os.File, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = httpErrorf(500, "log file %q is no regular file", f.Name())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openWithin opens the log, and retries for a duration while there is no file.
func (p logPath) openWithin(ctx context.Context, max time.Duration) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, max)
	defer cancel()
	for {
		f, err := p.open()
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(logAppearPoll):
		}
	}
}

// tailStart returns the offset of the last lines of a file. A last line without a newline is part
// of the tail but is not counted.
func tailStart(ctx context.Context, f *os.File, lines int64, buf []byte) (int64, error) {
	if lines < 0 {
		return 0, nil
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	for end := info.Size(); end > 0; {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		start := max(0, end-int64(len(buf)))
		n, err := f.ReadAt(buf[:end-start], start)
		if int64(n) < end-start {
			return 0, err // truncated meanwhile
		}
		for block := buf[:n]; ; lines-- {
			i := bytes.LastIndexByte(block, '\n')
			if i < 0 {
				break
			}
			if lines == 0 {
				return start + int64(i) + 1, nil
			}
			block = block[:i]
		}
		end = start
	}
	return 0, nil
}
