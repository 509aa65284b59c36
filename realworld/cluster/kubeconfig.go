package cluster

import (
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// kubeconfig is a kubeconfig file. All data is embedded, so the file can be copied.
type kubeconfig struct {
	APIVersion     string         `json:"apiVersion"`
	Kind           string         `json:"kind"`
	Clusters       []namedCluster `json:"clusters"`
	Contexts       []namedContext `json:"contexts"`
	CurrentContext string         `json:"current-context"`
	Users          []namedUser    `json:"users"`
}

type namedCluster struct {
	Name    string      `json:"name"`
	Cluster clusterInfo `json:"cluster"`
}

type clusterInfo struct {
	Server      string `json:"server"`
	Certificate []byte `json:"certificate-authority-data"`
}

type namedContext struct {
	Name    string      `json:"name"`
	Context contextInfo `json:"context"`
}

type contextInfo struct {
	Cluster string `json:"cluster"`
	User    string `json:"user"`
}

type namedUser struct {
	Name string     `json:"name"`
	User Credential `json:"user"`
}

// Credential authenticates a user: a certificate and its key, both in PEM, or a bearer token.
type Credential struct {
	Certificate []byte `json:"client-certificate-data,omitempty"`
	Key         []byte `json:"client-key-data,omitempty"`
	Token       string `json:"token,omitempty"`
}

// Kubeconfig writes a kubeconfig for a credential, into a file whose name is derived from the given
// one, and returns its path.
func (c *Cluster) Kubeconfig(name string, credential Credential) (string, error) {
	data, err := yaml.Marshal(kubeconfig{
		APIVersion: "v1", Kind: "Config", CurrentContext: "seedlet-test",
		Clusters: []namedCluster{{"seedlet-test", clusterInfo{c.URL, c.ca.pem()}}},
		Contexts: []namedContext{{"seedlet-test", contextInfo{"seedlet-test", name}}},
		Users:    []namedUser{{name, credential}},
	})
	if err != nil {
		return "", fmt.Errorf("making the kubeconfig of %s: %w", name, err)
	}
	file := strings.NewReplacer("/", "-", ":", "-").Replace(name) + ".kubeconfig"
	path := filepath.Join(c.Dir, file)
	return path, writeSecret(path, data)
}

// UserKubeconfig writes a kubeconfig for a user in groups, with a certificate of the cluster's
// authority.
func (c *Cluster) UserKubeconfig(user string, groups ...string) (string, error) {
	p, err := c.ca.client(user, groups...)
	if err != nil {
		return "", err
	}
	return c.Kubeconfig(user, Credential{Certificate: p.certificate, Key: p.key})
}

// NodeKubeconfig writes the kubeconfig of a node's agent.
func (c *Cluster) NodeKubeconfig(node string) (string, error) {
	return c.UserKubeconfig("system:node:"+node, nodesGroup)
}

// AdminKubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) AdminKubeconfig() string { return filepath.Join(c.Dir, "admin.kubeconfig") }
