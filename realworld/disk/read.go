package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/regularfile"
	"seedlet.dev/world"
)

// entriesMax bounds how many names are read from one directory. The agent's directories never have
// more, and reading without a bound could exhaust the memory.
const entriesMax = 100_000

// readFiles reads a file, or the regular files directly in a directory. Links to regular files are
// read too, because configuration is often linked into place.
func readFiles(m *world.ReadFiles) (*world.FilesRead, error) {
	info, err := os.Stat(m.Path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if !info.Mode().IsRegular() {
			return nil, world.Errorf(world.KindInvalid, "",
				"%s is neither a regular file nor a directory", m.Path)
		}
		file, err := readFile(m.Path, m.BytesMax)
		if err != nil {
			return nil, err
		}
		if file.Err != nil && !file.Err.Has(world.KindExhausted) {
			return nil, file.Err
		}
		return converted(m, &world.FilesRead{Files: []world.File{file}}), nil
	}
	entries, err := readDir(m.Path)
	if err != nil {
		return nil, err
	}
	result := &world.FilesRead{Directory: true, Files: []world.File{}}
	sum := int64(0)
	for _, entry := range entries {
		path := filepath.Join(m.Path, entry.Name())
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue // a directory, a pipe, a dangling link, or removed since it was listed
		}
		if len(result.Files) == m.FilesMax {
			return nil, world.Errorf(world.KindExhausted, "",
				"%s has more than %d files", m.Path, m.FilesMax)
		}
		file, err := readFile(path, m.BytesMax)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if sum += int64(len(file.Data)); m.SumMax > 0 && sum > m.SumMax {
			return nil, world.Errorf(world.KindExhausted, "",
				"at %s, the files of %s have more than %d bytes", file.Name, m.Path, m.SumMax)
		}
		result.Files = append(result.Files, file)
	}
	return converted(m, result), nil
}

// converted replaces the bytes of files by their documents if the request asks for those.
func converted(m *world.ReadFiles, read *world.FilesRead) *world.FilesRead {
	if m.Documents != nil {
		m.Documents.Convert(read.Files, read.Directory)
	}
	return read
}

// readFile reads one file. It returns an error only if the file no longer exists or is no longer a
// regular file; all other errors are in the returned File.
func readFile(path string, bytesMax int64) (world.File, error) {
	file := world.File{Name: filepath.Base(path)}
	data, err := regularfile.Read(path, bytesMax)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file, err
	case errors.Is(err, regularfile.ErrNotRegular): // it has replaced the file
		return file, &fs.PathError{Op: "read", Path: path, Err: unix.ENOENT}
	case errors.Is(err, regularfile.ErrTooLarge):
		file.Err = world.Errorf(world.KindExhausted, "ReadFiles", "%v", err)
	case err != nil:
		file.Err = toWorldError("ReadFiles", err)
	default:
		file.Data = data
	}
	return file, nil
}

// listDir lists a directory. A link is not listed as a directory, whatever its target is.
func listDir(path string) (*world.DirListed, error) {
	entries, err := readDir(path)
	if err != nil {
		return nil, err
	}
	result := &world.DirListed{Entries: make([]world.DirEntry, 0, len(entries))}
	for _, entry := range entries {
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		listed := world.DirEntry{
			Name: entry.Name(), Directory: entry.IsDir(), ModTime: info.ModTime().UTC(),
		}
		if info.Mode().IsRegular() {
			listed.Size = info.Size()
		}
		result.Entries = append(result.Entries, listed)
	}
	return result, nil
}

// openDir opens a directory without the calls by which os.OpenFile finds out whether a file can be
// waited for.
func openDir(path string) (*os.File, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case err != unix.EINTR:
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// readDir returns the entries of a directory in the order of their names.
func readDir(path string) ([]fs.DirEntry, error) {
	// O_DIRECTORY: opening a pipe that has replaced the directory would wait for a writer.
	dir, err := openDir(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(entriesMax + 1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(entries) > entriesMax {
		return nil, world.Errorf(world.KindExhausted, "",
			"%s has more than %d entries", path, entriesMax)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int {
		return strings.Compare(a.Name(), b.Name())
	})
	return entries, nil
}

// measureFiles looks at files one by one. What cannot be looked at has no size. No link below the
// directory is followed: it may lead to a file system that hangs.
func measureFiles(request *world.MeasureFiles) *world.FilesMeasured {
	result := &world.FilesMeasured{Sizes: make([]int64, len(request.Paths))}
	dir, err := unix.Open(request.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(dir)
	}
	for i, path := range request.Paths {
		result.Sizes[i] = world.NotMeasured
		if err == nil {
			result.Sizes[i] = fileSize(dir, path)
		}
	}
	return result
}

// fileSize returns the size of a file below an open directory.
func fileSize(dir int, path string) int64 {
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return world.NotMeasured
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return world.NotMeasured
	}
	return stat.Size
}
