"""Convolutional networks of one image (rows, columns, channels): a small CNN, ResNet18 and VGG16 for small images."""
