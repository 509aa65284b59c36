package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	"seedlet.dev/core/credentials"
	"seedlet.dev/realworld/regularfile"
)

// credentialFlags are the flags of the plugins that provide credentials for images.
type credentialFlags struct {
	config string
	binDir string
}

func (f *credentialFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.config, "image-credential-provider-config", "",
		"file of plugins that provide credentials for images (CredentialProviderConfig), or "+
			"directory of such *.json, *.yaml and *.yml files")
	fs.StringVar(&f.binDir, "image-credential-provider-bin-dir", "",
		"directory of the plugins of --image-credential-provider-config")
}

// settings returns the sources of the node's credentials: the plugins, whose programs must be
// there, and the Docker configuration of the node.
func (f *credentialFlags) settings(rootDir string) (credentials.Settings, error) {
	s := credentials.Settings{DockerPaths: dockerPaths(rootDir)}
	if f.config == "" && f.binDir == "" {
		return s, nil
	}
	if f.config == "" || f.binDir == "" {
		return s, errors.New("--image-credential-provider-config and " +
			"--image-credential-provider-bin-dir: need each other")
	}
	dir, err := filepath.Abs(f.binDir)
	if err != nil {
		return s, fmt.Errorf("--image-credential-provider-bin-dir: %w", err)
	}
	files, err := f.files()
	if err == nil {
		s.Providers, err = credentials.ParseConfig(files)
		s.ConfigHash = credentials.Hash(files)
	}
	if err != nil {
		return s, fmt.Errorf("--image-credential-provider-config: %w", err)
	}
	for _, p := range s.Providers {
		if _, err := exec.LookPath(filepath.Join(dir, p.Name)); err != nil {
			return s, fmt.Errorf("--image-credential-provider-bin-dir: %w", err)
		}
	}
	s.BinDir = dir
	return s, nil
}

// checkTokensForPlugins returns an error if a plugin gets tokens of service accounts, and the
// feature gate is off.
func checkTokensForPlugins(providers []credentials.Provider,
	c *kubeletconfig.KubeletConfiguration) error {
	name := credentials.GetsTokens(providers)
	if name == "" || config.TokensForPluginsEnabled(c) {
		return nil
	}
	return fmt.Errorf("--image-credential-provider-config: plugin %s: tokenAttributes: needs the "+
		"feature gate KubeletServiceAccountTokenForCredentialProviders", name)
}

// files reads the configuration of the plugins.
func (f *credentialFlags) files() ([]credentials.File, error) {
	paths := []string{f.config}
	info, err := os.Stat(f.config)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		if paths, err = configPaths(f.config); err != nil {
			return nil, err
		}
	}
	var files []credentials.File
	for _, path := range paths {
		data, err := regularfile.Read(path, configBytesMax)
		if err != nil {
			return nil, err
		}
		files = append(files, credentials.File{Name: path, Data: data})
	}
	return files, nil
}

// configPaths returns the files of a directory of configurations, sorted.
func configPaths(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, entry := range entries {
		ext := filepath.Ext(entry.Name())
		if !entry.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, ext) {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}
	switch {
	case len(paths) == 0:
		return nil, fmt.Errorf("%s has no *.json, *.yaml or *.yml file", dir)
	case len(paths) > configFilesMax:
		return nil, fmt.Errorf("%s has more than %d files", dir, configFilesMax)
	}
	return paths, nil
}

// dockerPaths returns where the Docker configuration of the node may be.
func dockerPaths(rootDir string) []string {
	work, err := os.Getwd()
	if err != nil {
		work = "/"
	}
	home, _ := os.UserHomeDir() // of a service of systemd there is none
	return credentials.DockerPaths(rootDir, work, cmp.Or(home, "/"))
}
