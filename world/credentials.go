package world

import (
	"strings"
	"time"
)

// The credentials port: credentials of the node for image registries, from plugins that are
// executed (KEP-2133), with tokens of service accounts (KEP-4412), and from the Docker
// configuration of the node. Its requests may be secret, and its completions are.

// CredentialBytesMax bounds the output of a plugin, and each file of a Docker configuration.
const CredentialBytesMax = 256 << 10

// CredentialRunMax bounds the run of a plugin, as in the kubelet. A run may wait for others before
// it starts, until the deadline.
const CredentialRunMax = time.Minute

// GetCredentials executes a plugin with a request on its standard input, in the environment of the
// agent and the given variables. It completes with CredentialsGot, also if the plugin fails. After
// CredentialRunMax, or at the deadline, the plugin is killed.
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

// CredentialsGot is the completion of GetCredentials: what the plugin wrote, and how long it ran,
// without what it has waited for others.
type CredentialsGot struct {
	Output []byte        `json:"password,omitempty"` // secret
	Took   time.Duration `json:"took"`
	// Err is how the run has failed; nil: it has not. A plugin that does not exist is KindNotFound,
	// one that was killed KindTimeout, any other KindInternal. The message has the beginning of the
	// plugin's standard error, without the token of the request (WithoutToken). An output of more
	// than CredentialBytesMax is KindExhausted.
	Err *Error `json:"err,omitempty"`
}

// tokenPartMin is how much of a part of a token has to be in a text, from its beginning, to be
// redacted.
const tokenPartMin = 8

// WithoutToken returns what a plugin wrote without the token of its request: without what begins as
// the header, the claims or the signature, since the token may be cut.
func WithoutToken(text, token string) string {
	for _, part := range strings.Split(token, ".") {
		if len(part) < tokenPartMin {
			continue
		}
		var kept strings.Builder
		for {
			before, rest, found := strings.Cut(text, part[:tokenPartMin])
			kept.WriteString(before)
			if !found {
				break
			}
			kept.WriteString("[redacted]")
			for known := part[tokenPartMin:]; known != "" && rest != "" && known[0] == rest[0]; {
				known, rest = known[1:], rest[1:]
			}
			text = rest
		}
		text = kept.String()
	}
	return text
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
