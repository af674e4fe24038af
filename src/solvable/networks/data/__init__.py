"""Image data, verified by sha256 and cached on this machine."""

from solvable.networks.data.archives import add_images
from solvable.networks.data.cache import data_folder
from solvable.networks.data.catalogue import image_sets
from solvable.networks.data.images import Images, fetch_images, load_images, stored_images

__all__ = ["Images", "add_images", "data_folder", "fetch_images", "image_sets", "load_images", "stored_images"]
