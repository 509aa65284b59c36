package main

import (
	"errors"

	"github.com/spf13/pflag"
)

// credentialFlags are the flags of the plugins that provide credentials for images.
type credentialFlags struct {
	config string
	binDir string
}

func (f *credentialFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.config, "image-credential-provider-config", "",
		"file or directory of CredentialProviderConfigs")
	fs.StringVar(&f.binDir, "image-credential-provider-bin-dir", "",
		"directory of the plugins of --image-credential-provider-config")
}

func (f *credentialFlags) check() error {
	if f.config != "" || f.binDir != "" {
		return errors.New("--image-credential-provider-config: plugins that provide credentials for " +
			"images are not supported yet")
	}
	return nil
}
