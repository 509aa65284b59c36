package parity

import (
	"path"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Cases about the images that the runtime has.

func imageFilesystem(p *pod) {
	info := must[*runtimeapi.ImageFsInfoResponse](p, &runtimeapi.ImageFsInfoRequest{})
	p.check(len(info.ImageFilesystems) == 1, "image file systems %v", info)
	fs := info.ImageFilesystems[0]
	p.check(path.IsAbs(fs.GetFsId().GetMountpoint()) && fs.GetUsedBytes() != nil &&
		fs.GetInodesUsed() != nil && fs.Timestamp > 0, "image file system %v", fs)
}

func removeUsedImage(p *pod) {
	id := p.createSandbox(0)
	runs := p.startNewContainer(id, Runs, 0)
	spec := p.w.Container(Runs).Image
	inspect := func() *runtimeapi.Image {
		return must[*runtimeapi.ImageStatusResponse](p,
			&runtimeapi.ImageStatusRequest{Image: spec}).Image
	}
	image := inspect()
	p.check(image != nil && p.status(runs).ImageRef != "", "the image of a container is absent")
	must[*runtimeapi.RemoveImageResponse](p, &runtimeapi.RemoveImageRequest{
		Image: &runtimeapi.ImageSpec{Image: image.Id}})
	p.check(inspect() == nil, "removed by its ID and present: %v", inspect())
	list := must[*runtimeapi.ListImagesResponse](p, &runtimeapi.ListImagesRequest{})
	p.check(!slices.ContainsFunc(list.Images, func(i *runtimeapi.Image) bool {
		return i.Id == image.Id
	}), "removed and listed: %v", list.Images)
	p.check(p.status(runs).State == isRunning, "the container has ended")
	p.mustFail(p.containerRequest(id, Exits0, 0), world.KindNotFound)
	must[*runtimeapi.PullImageResponse](p, &runtimeapi.PullImageRequest{Image: spec})
	again := inspect()
	p.check(again.GetId() == image.Id && again.Size == image.Size, "pulled again: %v", again)
	p.waitForExit(p.startNewContainer(id, Exits3, 0))
	p.check(p.status(runs).State == isRunning, "the container has ended")
}

func removeMissingImage(p *pod) {
	_, ref := p.w.Images()
	must[*runtimeapi.RemoveImageResponse](p, &runtimeapi.RemoveImageRequest{
		Image: &runtimeapi.ImageSpec{Image: ref}})
}
