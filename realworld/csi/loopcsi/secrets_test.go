package loopcsi

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestSecrets: a call that needs a secret is refused without it, with another call's, and with a
// key that is not its own; what needs none is not asked for one. No secret is logged or answered.
func TestSecrets(t *testing.T) {
	dir := newDir(t)
	o := optionsOf(dir)
	o.Secrets = map[string]string{"NodeStageVolume": "for-staging", "NodePublishVolume": "for-pods"}
	var log strings.Builder
	o.Log = func(line string) { log.WriteString(line + "\n") }
	d, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Stop)
	c := connect(t, o)
	capability := fileSystem("ext4")
	id := c.create("secret", capability)
	stage := func(secrets map[string]string) error {
		_, err := c.NodeStageVolume(c.within(), &csi.NodeStageVolumeRequest{VolumeId: id,
			StagingTargetPath: c.staging, VolumeCapability: capability, Secrets: secrets})
		return err
	}
	for _, wrong := range []map[string]string{nil, {secretKey: ""}, {secretKey: "for-pods"},
		{"other": "for-staging"}} {
		err := stage(wrong)
		wantCode(t, err, codes.Unauthenticated)
		if message := status.Convert(err).Message(); strings.Contains(message, "for-") {
			t.Errorf("the answer has a secret: %s", message)
		}
	}
	wantNothingLeft(t, dir)
	mustAll(t, stage(map[string]string{secretKey: "for-staging", "other": "x"}))
	wantCode(t, c.publish(id, capability, false), codes.Unauthenticated)
	_, err = c.NodePublishVolume(c.within(), &csi.NodePublishVolumeRequest{VolumeId: id,
		StagingTargetPath: c.staging, TargetPath: c.target, VolumeCapability: capability,
		Secrets: map[string]string{secretKey: "for-pods"}})
	mustAll(t, err, c.unpublish(id), c.unstage(id), c.remove(id))
	if strings.Contains(log.String(), "for-") {
		t.Errorf("the log has a secret:\n%s", log.String())
	}
}

func TestSecretsOfUnknownCalls(t *testing.T) {
	for _, secrets := range []map[string]string{{"NodeUnstageVolume": "x"}, {"What": "x"},
		{"NodeStageVolume": ""}} {
		if err := checkSecretCalls(secrets); err == nil {
			t.Errorf("%v: no error", secrets)
		}
	}
	if err := checkSecretCalls(map[string]string{"CreateVolume": "x",
		"NodeExpandVolume": "y"}); err != nil {
		t.Error(err)
	}
}
