package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The users who make claims of CSI volumes larger, and the external resizers of the drivers.

// resizeStepMost is how long a step of a resizer takes at most.
const resizeStepMost = 8 * time.Second

// growth is what a claim is made larger by.
var growth = resource.MustParse("1Gi")

// startGrowth has users make claims larger, as often as the plan says.
func (r *run) startGrowth() {
	rng := wire.Stream(r.plan.Seed, "growth of claims")
	for range r.plan.Growths {
		at := time.Duration(rng.Int64N(int64(r.plan.Duration)))
		r.agenda.After(at, func() { r.growClaim(rng) })
	}
}

// growClaim makes one of the bound claims of CSI volumes larger.
func (r *run) growClaim(rng *rand.Rand) {
	var grown []*v1.PersistentVolumeClaim
	for _, o := range r.server.Objects(world.ResourceClaims) {
		if o.Claim.Status.Phase == v1.ClaimBound && o.Claim.Spec.StorageClassName != nil &&
			r.plan.HasCSIDriver(*o.Claim.Spec.StorageClassName) {
			grown = append(grown, o.Claim)
		}
	}
	if len(grown) == 0 {
		return
	}
	claim := grown[rng.IntN(len(grown))]
	size := claim.Spec.Resources.Requests.Storage().DeepCopy()
	size.Add(growth)
	r.patchClaim(claim, false, fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`,
		size.String()))
}

// resizeClaims takes the next step for each claim that asks for more than it has: the status of the
// claim says what is allocated, then the volume grows, then the node is asked to follow.
func (r *run) resizeClaims() {
	for _, o := range r.server.Objects(world.ResourceClaims) {
		claim := o.Claim
		volume := migrated(r.server.Object(world.ResourceVolumes, "", claim.Spec.VolumeName).Volume)
		want, have := claim.Spec.Resources.Requests.Storage(), claim.Status.Capacity.Storage()
		if claim.Status.Phase != v1.ClaimBound || volume == nil || volume.Spec.CSI == nil ||
			want.Cmp(*have) <= 0 {
			continue
		}
		now, uid := r.agenda.Now(), string(claim.UID)
		if now.Before(r.volumes.resizeAt[uid]) {
			continue
		}
		r.volumes.resizeAt[uid] = now.Add(time.Duration(r.volumes.rng.Int64N(int64(resizeStepMost))))
		r.resizeClaim(claim, volume)
	}
}

func (r *run) resizeClaim(claim *v1.PersistentVolumeClaim, volume *v1.PersistentVolume) {
	allocated := claim.Status.AllocatedResources[v1.ResourceStorage]
	switch claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] {
	case "":
		r.patchClaim(claim, true, fmt.Sprintf(`{"status":{"allocatedResources":{"storage":%q},`+
			`"allocatedResourceStatuses":{"storage":"ControllerResizeInProgress"},`+
			`"conditions":[{"type":"Resizing","status":"True"}]}}`,
			claim.Spec.Resources.Requests.Storage().String()))
	case v1.PersistentVolumeClaimControllerResizeInProgress:
		if volume.Spec.Capacity.Storage().Cmp(allocated) < 0 {
			r.drivers.Grow(volume.Spec.CSI.Driver, volume.Spec.CSI.VolumeHandle, allocated.Value())
			r.adminWrite("resizer", &world.PatchObject{Resource: world.ResourceVolumes,
				Name: volume.Name, Patch: fmt.Appendf(nil, `{"spec":{"capacity":{"storage":%q}}}`,
					allocated.String())})
			return
		}
		r.patchClaim(claim, true, `{"status":{"allocatedResourceStatuses":{"storage":`+
			`"NodeResizePending"},"conditions":[{"type":"FileSystemResizePending","status":"True"}]}}`)
	}
}
