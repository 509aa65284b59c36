package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// archive is the part of tar that kubectl cp uses: "tar cf - PATH" writes an archive, and
// "tar -xmf - -C DIR" unpacks one.
func archive(args []string) (int, error) {
	args = slices.DeleteFunc(args, func(arg string) bool {
		return strings.HasPrefix(arg, "--no-same-")
	})
	var err error
	switch {
	case len(args) == 3 && args[0] == "cf" && args[1] == "-":
		err = pack(os.Stdout, args[2])
	case len(args) == 2 && args[0] == "-xmf" && args[1] == "-":
		err = unpack(os.Stdin, ".")
	case len(args) == 4 && args[0] == "-xmf" && args[1] == "-" && args[2] == "-C":
		err = unpack(os.Stdin, args[3])
	default:
		return 2, fmt.Errorf("want cf - PATH, or -xmf - and -C DIR, got %q", args)
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

func pack(out io.Writer, root string) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		header, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		header.Name = strings.TrimPrefix(at, "/")
		if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		file, err := os.Open(at)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, file)
		return errors.Join(err, file.Close())
	})
	return errors.Join(err, w.Close())
}

func unpack(in io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	archive := tar.NewReader(in)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, in) // the writer must not get a broken pipe
			return err
		}
		if err != nil {
			return err
		}
		above := path.Dir(path.Clean(header.Name)) // kubectl sends no header for a directory with files
		if header.Typeflag == tar.TypeDir {
			above = path.Clean(header.Name)
		}
		if err := root.MkdirAll(above, 0o755); err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		file, err := root.Create(header.Name)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, archive)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
}
