package world

import "time"

// The credentials port: credentials of the node for image registries, from plugins that are
// executed (KEP-2133), with tokens of service accounts (KEP-4412), and from the Docker
// configuration of the node. Its requests may be secret, and its completions are.

// CredentialBytesMax bounds the output of a plugin, and each file of a Docker configuration.
const CredentialBytesMax = 256 << 10

// CredentialRunMax bounds the run of a plugin, as in the kubelet. A run may wait for others before
// it starts, until the deadline.
const CredentialRunMax = time.Minute

// GetCredentials executes a plugin with a request on its standard input, in the environment of the
// agent and the given variables. It completes with CredentialsGot. A plugin that does not exist is
// KindNotFound; one that fails is KindInternal, with the beginning of its standard error; an output
// of more than CredentialBytesMax is KindExhausted. After CredentialRunMax, or at the deadline, the
// plugin is killed.
type GetCredentials struct {
	Program string               `json:"program"` // an absolute path
	Args    []string             `json:"args,omitempty"`
	Env     []CredentialVariable `json:"env,omitempty"` // values may be secret
	Request []byte               `json:"token"`         // secret, as it may have a token
}

// CredentialVariable is a variable in the environment of a plugin.
type CredentialVariable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// CredentialsGot is the completion of GetCredentials: what the plugin wrote.
type CredentialsGot struct {
	Output []byte `json:"password"` // secret
}

// ReadDockerConfig reads the files of a Docker configuration that exist, in order. It completes
// with DockerConfigRead.
type ReadDockerConfig struct {
	Paths []string `json:"paths"`
}

// DockerConfigRead is the completion of ReadDockerConfig. A file that does not exist is left out.
type DockerConfigRead struct {
	Files []DockerConfigFile `json:"files,omitempty"`
}

// DockerConfigFile is a file of a Docker configuration.
type DockerConfigFile struct {
	Path string `json:"path"`
	Data []byte `json:"password,omitempty"` // secret
	// Err is why the file could not be read; KindExhausted: it is larger than CredentialBytesMax.
	Err *Error `json:"err,omitempty"`
}
