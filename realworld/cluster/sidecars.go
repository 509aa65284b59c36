package cluster

import (
	"context"

	"seedlet.dev/realworld/cleanup"
)

// sidecarUser is the user of the sidecars of CSI drivers.
const sidecarUser = "csi-sidecars"

// NewSidecar returns a sidecar of a CSI driver, one of Provisioner, Attacher and Resizer, which is
// not started. It serves the driver with a socket, and ends when the driver does. Its user may do
// everything: the roles that the sidecars' own manifests have are not what is tested.
func (c *Cluster) NewSidecar(ctx context.Context, program, socket string,
	args ...string) (*cleanup.Daemon, error) {
	kubeconfig, err := c.UserKubeconfig(sidecarUser)
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, sidecarRole); err != nil {
		return nil, err
	}
	return c.newDaemon(c.tools.path(program), append([]string{"--kubeconfig=" + kubeconfig,
		"--csi-address=" + socket}, args...)...), nil
}

const sidecarRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ` + sidecarUser + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + sidecarUser + `}]
`
