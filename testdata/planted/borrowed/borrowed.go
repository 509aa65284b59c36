// Package borrowed is in a module that could import Kubernetes.
package borrowed
