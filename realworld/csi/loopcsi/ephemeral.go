package loopcsi

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// ephemeralKey is what an agent puts into the context of a volume that is written in a pod.
	ephemeralKey = "csi.storage.k8s.io/ephemeral"
	// sizeKey is the attribute of such a volume with its size, a quantity as in "64Mi".
	sizeKey = "size"
	// contextKey is the attribute of such a volume with the name of a file in it, which has the last
	// Publication as JSON. So a pod sees what the driver was given, and that its volume is published
	// again.
	contextKey = "contextFile"
)

// Publication is what an agent has given the driver for an ephemeral volume.
type Publication struct {
	Number  int               `json:"number"` // of the requests that the volume has had, from one
	Context map[string]string `json:"context"`
}

// publishEphemeral makes a volume that lives as long as it is published, and mounts it in the
// driver's own directory and, from there, at the target.
func (n *node) publishEphemeral(r *csi.NodePublishVolumeRequest) error {
	if r.VolumeCapability.GetBlock() != nil {
		return invalid("an ephemeral volume has a file system")
	}
	capabilities := []*csi.VolumeCapability{r.VolumeCapability}
	wanted := &csi.CapacityRange{}
	if text := r.VolumeContext[sizeKey]; text != "" {
		quantity, err := resource.ParseQuantity(text)
		if err != nil || quantity.Value() <= 0 {
			return invalid("%s %q: want a positive quantity", sizeKey, text)
		}
		wanted.RequiredBytes = quantity.Value()
	}
	file := r.VolumeContext[contextKey]
	if file != "" && !validID.MatchString(file) {
		return invalid("%s %q: want %s", contextKey, file, validID)
	}
	size, err := sizeFor(wanted, sizeMin(capabilities), n.store.capacity)
	if err != nil {
		return err
	}
	volume := n.store.volume(r.VolumeId)
	release, err := volume.lockNew()
	if err != nil {
		return err
	}
	defer release()
	rec, _, err := volume.read()
	switch {
	case err == nil && !rec.Ephemeral:
		return status.Errorf(codes.AlreadyExists, "volume %s is not ephemeral", volume.id)
	case err != nil && status.Code(err) != codes.NotFound:
		return err
	case err != nil:
		if err := n.createEphemeral(volume, r.VolumeId, size); err != nil {
			return errors.Join(err, volume.remove())
		}
	}
	l, err := attachLoop(volume)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(volume.privateStaging(), 0o700); err != nil {
		return fmt.Errorf("making the staging path: %w", err)
	}
	staging := volume.privateStaging()
	if err := n.mountFileSystem(volume, l, staging, r.VolumeCapability, false); err != nil {
		return err
	}
	if file != "" {
		if err := writePublication(staging, file, r.VolumeContext); err != nil {
			return err
		}
	}
	readOnly := r.Readonly || isReadOnly(r.VolumeCapability)
	return publishFileSystem(volume, staging, resolve(r.TargetPath), readOnly)
}

// writePublication replaces the file of the last Publication of a mounted volume by that of the
// next one. A pod may have written to the volume: what it did leads nowhere outside, and a file
// that is not a Publication counts as none.
func writePublication(staging, name string, given map[string]string) error {
	root, err := os.OpenRoot(staging)
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	defer func() { _ = root.Close() }() // nothing is written to the directory itself
	var last Publication
	if data, err := root.ReadFile(name); err != nil || json.Unmarshal(data, &last) != nil {
		last = Publication{}
	}
	data, err := json.Marshal(Publication{Number: last.Number + 1, Context: given})
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := root.WriteFile("."+name, data, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := root.Rename("."+name, name); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

func (n *node) createEphemeral(volume item, name string, size int64) error {
	if err := n.store.allocate(volume, size); err != nil {
		return err
	}
	return volume.write(record{Name: name, Zone: n.options.Zone, Ephemeral: true})
}

// removeEphemeral removes an ephemeral volume that is not published any more. Its directory goes
// last, so that a repeated request finds what is left.
func removeEphemeral(volume item) error {
	rec, err := volume.readRecord()
	if status.Code(err) == codes.NotFound || err == nil && !rec.Ephemeral {
		return nil
	}
	if err != nil {
		return err
	}
	if err := unmountVolume(volume, volume.privateStaging()); err != nil {
		return err
	}
	return removeUnmounted(volume, "published elsewhere")
}
