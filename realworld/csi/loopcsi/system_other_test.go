//go:build !linux

package loopcsi

import (
	"errors"
	"os"
	"testing"
)

func groupOf(string) (uint32, error) { return 0, errors.ErrUnsupported }
func reserve(*os.File, int64) error  { return errors.ErrUnsupported }
func canExpandExt4(*testing.T) bool  { return false }
