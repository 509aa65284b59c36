package main

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"seedlet.dev/core/config"
	"seedlet.dev/realworld/regularfile"
)

const (
	// configBytesMax bounds a configuration file.
	configBytesMax = 4 << 20
	// configFilesMax bounds the files of the drop-in directory.
	configFilesMax = 1024
)

// loadConfig reads the configuration file and merges the drop-in files over it. Either may be
// empty. Gates are those of the command line.
func loadConfig(file, dir string, gates map[string]bool) (*config.Loaded, error) {
	var base *config.File
	if file != "" {
		read, err := readConfig(file)
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		base = &read
	}
	var dropIns []config.File
	if dir != "" {
		var err error
		if dropIns, err = readDropIns(dir); err != nil {
			return nil, fmt.Errorf("--config-dir: %w", err)
		}
	}
	return config.Load(base, dropIns, gates)
}

// readDropIns reads the *.conf files of a directory and its subdirectories, in the order of
// their paths, as the kubelet does.
func readDropIns(dir string) ([]config.File, error) {
	var files []config.File
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".conf" {
			return err
		}
		if len(files) == configFilesMax {
			return fmt.Errorf("%s has more than %d *.conf files", dir, configFilesMax)
		}
		file, err := readConfig(path)
		files = append(files, file)
		return err
	})
	return files, err
}

// readConfig reads a file. Its name is made absolute, because relative paths in it are relative to
// the file.
func readConfig(path string) (config.File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return config.File{}, err
	}
	data, err := regularfile.Read(path, configBytesMax)
	if err != nil {
		return config.File{}, err
	}
	return config.File{Name: path, Data: data}, nil
}
